package main

import "testing"

// The figures are those of the workloads' description.
func TestFeasibleNodesWanted(t *testing.T) {
	for nodes, want := range map[int]int{50: 50, 100: 100, 1000: 420, 1213: 497, 5000: 500} {
		if got := feasibleWanted(nodes); got != want {
			t.Errorf("%d nodes: want %d, got %d", nodes, want, got)
		}
	}
}

func TestBothModesGiveEachClaimANode(t *testing.T) {
	w, err := readWorkload("../../libs/structured/testdata/bench/workloads/a-gpu-100.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []runOrder{{Mode: modeSeq}, {Mode: modeSched, Workers: 1}, {Mode: modeSched, Workers: 4}} {
		order.MaxClaims = 5
		report, err := w.run(order)
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Claims) != 5 || report.GaveUp != 0 || report.CPUNanos <= 0 {
			t.Errorf("%+v: %+v", order, report)
		}
		for _, claim := range report.Claims {
			if claim.Outcome != "allocated" || claim.Node == "" || len(claim.Devices) == 0 || claim.Nanos <= 0 {
				t.Errorf("%+v: %+v", order, claim)
			}
		}
	}
}
