package main

// Conformance cases: one node, the claims of one pod, the state; the answer is in the form of a case's `expect`.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Expressions kept compiled over all cases of a process; generated cases use a few dozen.
const caseExpressionsMax = 1000

// Bytes of the longest case.
const caseBytesMax = 64 << 20

type allocatorCase struct {
	ID             string                       `json:"id"`
	Features       []string                     `json:"features"`
	Interrupt      string                       `json:"interrupt"`
	Node           *corev1.Node                 `json:"node"`
	Claims         []*resourceapi.ResourceClaim `json:"claims"`
	DeviceClasses  []*resourceapi.DeviceClass   `json:"deviceClasses"`
	ResourceSlices []*resourceapi.ResourceSlice `json:"resourceSlices"`
	Allocated      heldState                    `json:"allocated"`
}

type heldState struct {
	Devices  []deviceName   `json:"devices"`
	Shares   []heldShare    `json:"shares"`
	Capacity []heldCapacity `json:"capacity"`
}

type deviceName struct {
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
}

type heldShare struct {
	deviceName
	ShareID types.UID `json:"shareID"`
}

type heldCapacity struct {
	deviceName
	Consumed map[resourceapi.QualifiedName]resource.Quantity `json:"consumed"`
}

// caseAnswer holds the answers with the case's own gates and with all of them.
type caseAnswer struct {
	ID          string      `json:"id"`
	Expect      expectation `json:"expect"`
	ExpectAllOn expectation `json:"expectAllOn"`
}

type expectation struct {
	Outcome     string            `json:"outcome"`
	Allocations []claimAllocation `json:"allocations,omitempty"`
	Error       *expectedError    `json:"error,omitempty"`
}

type claimAllocation struct {
	Claim      string                       `json:"claim"`
	Allocation resourceapi.AllocationResult `json:"allocation"`
}

type expectedError struct {
	Kind  string `json:"kind"`
	Scope string `json:"scope"`
	Text  string `json:"text"`
}

// The outcome when the time for an answer was used up.
const gaveUp = "gave-up"

// answerCases answers each line of in with a line on out, in order, and flushes after each.
func answerCases(in io.Reader, out io.Writer, timeout time.Duration) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, caseBytesMax)
	buffered := bufio.NewWriter(out)
	answers := json.NewEncoder(buffered)
	expressions := make(map[cel.Features]*cel.Cache)
	for lines.Scan() {
		var c allocatorCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("read case: %w", err)
		}
		answer := caseAnswer{
			ID:          c.ID,
			Expect:      c.answer(featuresOf(c.Features), expressions, timeout),
			ExpectAllOn: c.answer(allFeatures, expressions, timeout),
		}
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		if err := buffered.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	return lines.Err()
}

// answer asks the reference once. Input that no API server would let in can make it panic, which is an answer too.
func (c *allocatorCase) answer(
	features structured.Features,
	expressions map[cel.Features]*cel.Cache,
	timeout time.Duration,
) (answer expectation) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = expectation{Outcome: "error", Error: &expectedError{Kind: "panic", Scope: "call", Text: fmt.Sprint(problem)}}
		}
	}()
	key := cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	}
	if expressions[key] == nil {
		expressions[key] = newExpressions(features, caseExpressionsMax)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if c.Interrupt != "" {
		cancel()
	}
	allocator, err := structured.NewAllocator(
		ctx, features, c.state(features), classesOf(c.DeviceClasses), c.ResourceSlices, expressions[key])
	if err != nil {
		return failure(err)
	}
	results, err := allocator.Allocate(ctx, c.Node, c.Claims)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return expectation{Outcome: gaveUp}
	case err != nil:
		return failure(err)
	case results == nil && len(c.Claims) > 0:
		return expectation{Outcome: "none"}
	default:
		return c.allocated(results)
	}
}

// state is what kube-scheduler would have derived from claims with these results.
func (c *allocatorCase) state(features structured.Features) structured.AllocatedState {
	state := newState()
	for _, device := range c.Allocated.Devices {
		state.AllocatedDevices.Insert(device.id())
	}
	for _, share := range c.Allocated.Shares {
		if !features.ConsumableCapacity {
			state.AllocatedDevices.Insert(share.id())
			continue
		}
		takeShare(state, share.id(), &share.ShareID, nil)
	}
	for _, capacity := range c.Allocated.Capacity {
		if !features.ConsumableCapacity {
			state.AllocatedDevices.Insert(capacity.id())
			continue
		}
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(capacity.id(), capacity.Consumed))
	}
	return state
}

func (d deviceName) id() structured.DeviceID {
	return structured.MakeDeviceID(d.Driver, d.Pool, d.Device)
}

func (c *allocatorCase) allocated(results []resourceapi.AllocationResult) expectation {
	answer := expectation{Outcome: "allocated"}
	anyShare := types.UID("*")
	for i, result := range results {
		for j := range result.Devices.Results {
			if result.Devices.Results[j].ShareID != nil {
				result.Devices.Results[j].ShareID = &anyShare
			}
		}
		claim := c.Claims[i]
		answer.Allocations = append(answer.Allocations, claimAllocation{
			Claim:      claim.Namespace + "/" + claim.Name,
			Allocation: result,
		})
	}
	return answer
}

// errorKinds tells the kind of an error by its text, first match first: texts of expressions come last in a message.
var errorKinds = []struct{ text, kind string }{
	{"invalid resource pools were encountered", "invalid-pool"},
	{"filter operation aborted", "cancelled"},
	{"gather pool information: ", "bad-node-selector"},
	{"create NodeSelector for claim ", "bad-node-selector"},
	{"compile derived attribute ", "derived-evaluation"},
	{"evaluate derived attribute ", "derived-evaluation"},
	{"feature is disabled", "feature-disabled"},
	{"CEL expression empty (unsupported selector type?)", "unsupported-selector"},
	{"missing device class name (unsupported request type?)", "missing-class-name"},
	{"could not retrieve device class ", "unknown-class"},
	{"exceeds the claim limit of ", "too-many-devices"},
	{"is too large", "too-many-devices"},
	{"is currently being updated", "all-pool-incomplete"},
	{"is currently invalid", "all-pool-invalid"},
	{"unsupported count mode ", "unsupported-mode"},
	{"empty constraint (unsupported constraint type?)", "unsupported-constraint"},
	{"because a claim constraint would not be satisfied", "all-constraint"},
	{"capacity request cannot be represented", "capacity-not-representable"},
	{"capacity value is negative", "capacity-negative"},
	{"CEL compile error", "cel-compile"},
	{"CEL runtime error", "cel-runtime"},
}

func failure(err error) expectation {
	answer := expectedError{Kind: "unknown", Scope: "claim", Text: err.Error()}
	for _, known := range errorKinds {
		if strings.Contains(answer.Text, known.text) {
			answer.Kind = known.kind
			break
		}
	}
	switch {
	case answer.Kind == "cancelled":
		answer.Scope = "call"
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		answer.Scope = "node"
	}
	return expectation{Outcome: "error", Error: &answer}
}
