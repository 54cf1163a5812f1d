package main

// Bench workloads: claims one after the other, nothing ever released, with time per claim.
//
// Times exclude reading the file. CPU time is that of the whole process, garbage collection included; each run starts with
// a collection, so that no run pays for the one before.

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	workloadFormat = "allocbench/1"
	modeSeq        = "seq"
	modeSched      = "sched"
)

// Default of the scheduler's DRA filter timeout, per node.
const nodeTimeout = 10 * time.Second

// Size of the scheduler's cache of compiled expressions.
const schedulerExpressionsMax = 10

type workload struct {
	Format         string                       `json:"format"`
	Nodes          []workloadNode               `json:"nodes"`
	DeviceClasses  []*resourceapi.DeviceClass   `json:"deviceClasses"`
	ResourceSlices []*resourceapi.ResourceSlice `json:"resourceSlices"`
	Claims         []*resourceapi.ResourceClaim `json:"claims"`
	Preallocated   []deviceName                 `json:"preallocated"`

	nodes   []*corev1.Node
	classes classes
}

type workloadNode struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// runOrder says how to run a workload; zero limits mean none.
type runOrder struct {
	Mode       string  `json:"mode"`
	Workers    int     `json:"workers"`
	MaxSeconds float64 `json:"maxSeconds"`
	MaxClaims  int     `json:"maxClaims"`
}

// runReport tells what became of the claims that were started, in file order.
type runReport struct {
	Claims   []claimReport `json:"claims"`
	GaveUp   int           `json:"gaveUp"`
	CPUNanos int64         `json:"cpuNanos"`
}

type claimReport struct {
	// allocated, none, timeout or error
	Outcome string   `json:"outcome"`
	Node    string   `json:"node,omitempty"`
	Devices []string `json:"devices,omitempty"`
	Error   string   `json:"error,omitempty"`
	Nanos   int64    `json:"nanos"`
}

func readWorkload(path string) (*workload, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var w workload
	if err := json.NewDecoder(unpacked).Decode(&w); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if w.Format != workloadFormat {
		return nil, fmt.Errorf("%s: format %q, wanted %q", path, w.Format, workloadFormat)
	}
	w.classes = classesOf(w.DeviceClasses)
	for _, node := range w.Nodes {
		w.nodes = append(w.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}})
	}
	return &w, nil
}

// serve runs the workload once per line of in.
func (w *workload) serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var order runOrder
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		if err := w.runOnce(order, out); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (w *workload) runOnce(order runOrder, out io.Writer) error {
	report, err := w.run(order)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(out)
	if err := json.NewEncoder(buffered).Encode(report); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return buffered.Flush()
}

// search finds a node for one claim.
type search func(allocator structured.Allocator, claim *resourceapi.ResourceClaim) (*decision, error)

// decision is a claim's allocation and where it was made.
type decision struct {
	node   *corev1.Node
	result *resourceapi.AllocationResult
}

func (w *workload) run(order runOrder) (*runReport, error) {
	var find search
	switch order.Mode {
	case modeSeq:
		order.Workers = 1
		find = w.firstFit
	case modeSched:
		filter := nodeFilter{workload: w, workers: max(order.Workers, 1)}
		find = filter.choose
	default:
		return nil, fmt.Errorf("unknown mode %q", order.Mode)
	}
	threads := runtime.GOMAXPROCS(min(max(order.Workers, 1), runtime.NumCPU()))
	defer runtime.GOMAXPROCS(threads)
	run := w.newRun(find)
	runtime.GC()
	began, cpuBefore := time.Now(), cpuTime()
	for i, claim := range w.Claims {
		isOver := order.MaxSeconds > 0 && time.Since(began).Seconds() >= order.MaxSeconds
		if isOver || (order.MaxClaims > 0 && i >= order.MaxClaims) {
			break
		}
		run.claim(claim, order.Mode == modeSched)
	}
	run.report.CPUNanos = int64(cpuTime() - cpuBefore)
	return &run.report, nil
}

// workloadRun is a run under way.
type workloadRun struct {
	workload    *workload
	find        search
	state       structured.AllocatedState
	expressions *cel.Cache
	report      runReport
}

func (w *workload) newRun(find search) *workloadRun {
	run := &workloadRun{
		workload:    w,
		find:        find,
		state:       newState(),
		expressions: newExpressions(benchFeatures, schedulerExpressionsMax),
	}
	for _, device := range w.Preallocated {
		run.state.AllocatedDevices.Insert(device.id())
	}
	return run
}

// claim decides one claim with an allocator made for it, as the scheduler does for each pod; with `copied` it works on a copy
// of the state, which the scheduler also makes.
func (r *workloadRun) claim(claim *resourceapi.ResourceClaim, copied bool) {
	began := time.Now()
	state := r.state
	if copied {
		state = cloneState(r.state)
	}
	w := r.workload
	var found *decision
	allocator, err := structured.NewAllocator(
		context.Background(), benchFeatures, state, w.classes, w.ResourceSlices, r.expressions)
	if err == nil {
		found, err = r.find(allocator, claim)
	}
	if found != nil {
		take(r.state, benchFeatures, found.result.Devices.Results)
	}
	report := claimReport{Outcome: "none", Nanos: int64(time.Since(began))}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		report.Outcome = "timeout"
		r.report.GaveUp++
	case err != nil:
		report.Outcome, report.Error = "error", err.Error()
	case found != nil:
		report.Outcome, report.Node = "allocated", found.node.Name
		for _, result := range found.result.Devices.Results {
			report.Devices = append(report.Devices,
				fmt.Sprintf("%s=%s/%s/%s", result.Request, result.Driver, result.Pool, result.Device))
		}
	}
	r.report.Claims = append(r.report.Claims, report)
}

// firstFit takes the first node in file order that fits.
func (w *workload) firstFit(allocator structured.Allocator, claim *resourceapi.ResourceClaim) (*decision, error) {
	for _, node := range w.nodes {
		found, err := tryNode(context.Background(), allocator, node, claim)
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// tryNode asks for one node, no longer than the scheduler would. An error of this node only is no error.
func tryNode(
	ctx context.Context,
	allocator structured.Allocator,
	node *corev1.Node,
	claim *resourceapi.ResourceClaim,
) (*decision, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
	switch {
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, nil
	case err != nil:
		return nil, err
	case len(results) == 0:
		return nil, nil
	default:
		return &decision{node: node, result: &results[0]}, nil
	}
}

// cpuTime is user and system time of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // cannot fail with these arguments
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
