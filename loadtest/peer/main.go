// Peer runs the reference allocator (k8s.io/dynamic-resource-allocation) on the inputs that Dray's own allocator is
// judged and measured with, so that both can be compared in one run on one machine.
//
//	peer cases    [flags]       conformance cases as JSON lines on standard input, answers as JSON lines on standard output
//	peer workload [flags] FILE  a bench workload (gzip): one run, or with -serve one run per line on standard input
//	peer selectors FILE         time per evaluation of the workload's selectors
//
// It never writes anything but answers to standard output, and holds no state between cases or runs except compiled
// expressions of cases.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

const usage = "usage: peer cases [flags] | peer workload [flags] FILE | peer selectors FILE"

// selectorSeconds is long enough to have many thousand evaluations.
const selectorSeconds = time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s", usage)
	}
	switch args[0] {
	case "cases":
		return runCases(args[1:])
	case "workload":
		return runWorkload(args[1:])
	case "selectors":
		return runSelectors(args[1:])
	default:
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
}

func runCases(args []string) error {
	flags := flag.NewFlagSet("cases", flag.ContinueOnError)
	variant := flags.String("variant", "experimental", "which allocator: experimental, incubating or stable")
	timeout := flags.Duration("timeout", 5*time.Second, "time per answer after which the allocator has given up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := chooseVariant(*variant); err != nil {
		return err
	}
	return answerCases(os.Stdin, os.Stdout, *timeout)
}

func runWorkload(args []string) error {
	flags := flag.NewFlagSet("workload", flag.ContinueOnError)
	variant := flags.String("variant", "incubating", "which allocator: experimental, incubating or stable")
	serve := flags.Bool("serve", false, "read one run per line from standard input, for example {\"mode\":\"seq\",\"maxSeconds\":2}")
	var order runOrder
	flags.StringVar(&order.Mode, "mode", modeSeq, "seq: first node that fits; sched: filter nodes as kube-scheduler does")
	flags.IntVar(&order.Workers, "workers", 1, "workers of the filter in mode sched")
	flags.Float64Var(&order.MaxSeconds, "max-seconds", 0, "start no claim after this many seconds; 0: no limit")
	flags.IntVar(&order.MaxClaims, "max-claims", 0, "start no claim after this many; 0: all")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%s", usage)
	}
	if err := chooseVariant(*variant); err != nil {
		return err
	}
	workload, err := readWorkload(flags.Arg(0))
	if err != nil {
		return err
	}
	if *serve {
		return workload.serve(os.Stdin, os.Stdout)
	}
	return workload.runOnce(order, os.Stdout)
}

func runSelectors(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s", usage)
	}
	workload, err := readWorkload(args[0])
	if err != nil {
		return err
	}
	return workload.measureSelectors(selectorSeconds, os.Stdout)
}
