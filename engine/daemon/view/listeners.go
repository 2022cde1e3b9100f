package view

import (
	"slices"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
)

// Listeners returns the listeners of programs, and of those exports that have no error.
func Listeners(s *control.Snapshot) []control.ListenerState {
	list := slices.Clip(s.Listeners) // s keeps its own
	for i := range s.Exports {
		e := &s.Exports[i]
		if e.Error != "" {
			continue
		}
		for _, at := range config.ListenAddresses(e.Listen) {
			list = append(list, control.ListenerState{Port: PortOf(s, e.Device), Addr: at,
				Owner: control.Owner{Export: e.Name}})
		}
	}
	return list
}

// PortOf returns the port of a device. Its index is 0 if the snapshot does not have the device.
func PortOf(s *control.Snapshot, device string) control.Port {
	p := control.Port{DeviceRef: control.DeviceRef{Device: device}, Port: 1}
	for i := range s.Devices {
		if s.Devices[i].Name == device {
			p.Index = i
		}
	}
	return p
}
