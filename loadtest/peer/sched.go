package main

// Mode sched: nodes are filtered as kube-scheduler does it. Workers take nodes from a rotating start until enough of them
// fit; the first of these in rotated order is taken.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Below this many nodes all are looked at; kube-scheduler's minFeasibleNodesToFind.
const feasibleNodesMin = 100

// nodeFilter remembers where the next claim starts.
type nodeFilter struct {
	workload *workload
	workers  int
	start    int
}

// feasibleWanted is kube-scheduler's numFeasibleNodesToFind with its default percentage.
func feasibleWanted(nodes int) int {
	if nodes < feasibleNodesMin {
		return nodes
	}
	percentage := max(5, 50-nodes/125)
	return max(feasibleNodesMin, nodes*percentage/100)
}

func (f *nodeFilter) choose(allocator structured.Allocator, claim *resourceapi.ResourceClaim) (*decision, error) {
	nodes := f.workload.nodes
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	pass := filterPass{
		ctx:       ctx,
		cancel:    cancel,
		allocator: allocator,
		claim:     claim,
		wanted:    int64(feasibleWanted(len(nodes))),
		found:     make([]*decision, len(nodes)),
	}
	var workers sync.WaitGroup
	for range f.workers {
		workers.Go(func() { pass.work(nodes, f.start) })
	}
	workers.Wait()
	f.start = (f.start + int(pass.looked.Load())) % len(nodes)
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	for _, found := range pass.found {
		if found != nil {
			return found, nil
		}
	}
	return nil, nil
}

var errEnough = errors.New("enough nodes fit")

// filterPass is the filter of one claim under way.
type filterPass struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	allocator structured.Allocator
	claim     *resourceapi.ResourceClaim
	wanted    int64
	next      atomic.Int64
	feasible  atomic.Int64
	looked    atomic.Int64
	// By position in rotated order; each is written by one worker.
	found []*decision
}

func (p *filterPass) work(nodes []*corev1.Node, start int) {
	for p.ctx.Err() == nil {
		at := int(p.next.Add(1) - 1)
		if at >= len(nodes) {
			return
		}
		found, err := tryNode(p.ctx, p.allocator, nodes[(start+at)%len(nodes)], p.claim)
		switch {
		case p.ctx.Err() != nil:
			return // stopped in the middle: this node was not looked at
		case err != nil:
			p.cancel(err)
			return
		case found == nil:
			p.looked.Add(1)
		default:
			p.accept(at, found)
		}
	}
}

// accept counts a node that fits, unless enough others did meanwhile.
func (p *filterPass) accept(at int, found *decision) {
	count := p.feasible.Add(1)
	if count > p.wanted {
		return
	}
	p.looked.Add(1)
	p.found[at] = found
	if count == p.wanted {
		p.cancel(errEnough)
	}
}
