package main

// The cost of one selector on one device, without an allocator around it.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Slices whose devices are evaluated; enough to have every kind of device of a workload.
const sampledSlices = 64

type selectorReport struct {
	Evaluations int   `json:"evaluations"`
	Nanos       int64 `json:"nanos"`
}

// measureSelectors evaluates every selector of the workload on the sampled devices, again and again for about that long.
func (w *workload) measureSelectors(atLeast time.Duration, out io.Writer) error {
	var compiled []cel.CompilationResult
	compiler := newExpressions(benchFeatures, schedulerExpressionsMax)
	for _, expression := range sets.List(w.expressions()) {
		result := compiler.GetOrCompile(expression)
		if result.Error != nil {
			return fmt.Errorf("compile %s: %w", expression, result.Error)
		}
		compiled = append(compiled, result)
	}
	devices := w.sampledDevices()
	if len(compiled) == 0 || len(devices) == 0 {
		return fmt.Errorf("the workload has no selectors or no devices")
	}
	var report selectorReport
	began := time.Now()
	for time.Since(began) < atLeast {
		for _, expression := range compiled {
			for _, device := range devices {
				if _, _, err := expression.DeviceMatches(context.Background(), device); err != nil {
					return fmt.Errorf("evaluate %s: %w", expression.Expression, err)
				}
				report.Evaluations++
			}
		}
	}
	report.Nanos = int64(time.Since(began))
	return json.NewEncoder(out).Encode(report)
}

func (w *workload) expressions() sets.Set[string] {
	found := sets.New[string]()
	add := func(selectors []resourceapi.DeviceSelector) {
		for _, selector := range selectors {
			found.Insert(selector.CEL.Expression)
		}
	}
	for _, class := range w.DeviceClasses {
		add(class.Spec.Selectors)
	}
	for _, claim := range w.Claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly != nil {
				add(request.Exactly.Selectors)
			}
			for _, alternative := range request.FirstAvailable {
				add(alternative.Selectors)
			}
		}
	}
	return found
}

func (w *workload) sampledDevices() []cel.Device {
	var devices []cel.Device
	for _, slice := range w.ResourceSlices[:min(sampledSlices, len(w.ResourceSlices))] {
		for _, device := range slice.Spec.Devices {
			devices = append(devices, cel.Device{
				Driver:                   slice.Spec.Driver,
				AllowMultipleAllocations: device.AllowMultipleAllocations,
				Attributes:               device.Attributes,
				Capacity:                 device.Capacity,
			})
		}
	}
	return devices
}
