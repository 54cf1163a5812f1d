package main

// What the reference allocator needs around it: feature gates by name, classes by name, expressions, what is in use.

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// chooseVariant restricts this process to one of the reference's three implementations.
func chooseVariant(name string) error {
	if !slices.Contains([]string{"experimental", "incubating", "stable"}, name) {
		return fmt.Errorf("unknown variant %q", name)
	}
	structured.EnableAllocators(name)
	return nil
}

var allFeatures = structured.Features{
	AdminAccess:             true,
	CompatibilityGroups:     true,
	ConsumableCapacity:      true,
	DerivedAttributes:       true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	ListTypeAttributes:      true,
	OptionalNodeOperations:  true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

// benchFeatures are the gates of the workloads' reference run: a default 1.37 scheduler, fractional ranges included.
var benchFeatures = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

// featuresOf switches on exactly the named gates; gates that do not concern the allocator are ignored.
func featuresOf(names []string) structured.Features {
	on := sets.New(names...)
	return structured.Features{
		AdminAccess:             on.Has("DRAAdminAccess"),
		CompatibilityGroups:     on.Has("DRADeviceCompatibilityGroups"),
		ConsumableCapacity:      on.Has("DRAConsumableCapacity"),
		DerivedAttributes:       on.Has("DRADerivedAttributes"),
		DeviceBindingAndStatus:  on.Has("DRADeviceBindingConditions") && on.Has("DRAResourceClaimDeviceStatus"),
		DeviceTaints:            on.Has("DRADeviceTaints"),
		FractionalCapacityRange: on.Has("DRAFractionalCapacityRange"),
		ListTypeAttributes:      on.Has("DRAListTypeAttributes"),
		OptionalNodeOperations:  on.Has("DRAOptionalNodeOperations"),
		PartitionableDevices:    on.Has("DRAPartitionableDevices"),
		PrioritizedList:         on.Has("DRAPrioritizedList"),
	}
}

// newExpressions is an empty cache of compiled expressions for these gates.
func newExpressions(features structured.Features, size int) *cel.Cache {
	return cel.NewCache(size, cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	})
}

// classes is a lister over a fixed set.
type classes map[string]*resourceapi.DeviceClass

func classesOf(list []*resourceapi.DeviceClass) classes {
	byName := make(classes, len(list))
	for _, class := range list {
		byName[class.Name] = class
	}
	return byName
}

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	list := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		list = append(list, class)
	}
	return list, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, fmt.Errorf("deviceclass %q not found", name)
}

// newState is the state in which nothing is in use.
func newState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

func cloneState(state structured.AllocatedState) structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         state.AllocatedDevices.Clone(),
		AllocatedSharedDeviceIDs: state.AllocatedSharedDeviceIDs.Clone(),
		AggregatedCapacity:       state.AggregatedCapacity.Clone(),
	}
}

// take adds what a claim was given, by the rules of kube-scheduler: admin access holds nothing, and a share holds the
// whole device while the gate for shares is off.
func take(state structured.AllocatedState, features structured.Features, results []resourceapi.DeviceRequestAllocationResult) {
	for _, result := range results {
		if result.AdminAccess != nil && *result.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		if result.ShareID == nil || !features.ConsumableCapacity {
			state.AllocatedDevices.Insert(id)
			continue
		}
		takeShare(state, id, result.ShareID, result.ConsumedCapacity)
	}
}

func takeShare(
	state structured.AllocatedState,
	id structured.DeviceID,
	shareID *types.UID,
	consumed map[resourceapi.QualifiedName]resource.Quantity,
) {
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, shareID))
	if len(consumed) > 0 {
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, consumed))
	}
}
