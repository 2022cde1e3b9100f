package client

import (
	"context"
	"os"

	"xwarp/engine/daemon/control"
)

// Capture is a capture of the frames of a device. It is read as a pcapng file, to its end.
type Capture struct {
	*os.File // the file, as a stream
	object
}

// Capture begins a capture. Only the operator may, and who the daemon's configuration names; others get EACCES. It
// fails with EINVAL for a filter that cannot be.
func (d *Device) Capture(ctx context.Context, args control.CaptureArgs) (*Capture, error) {
	var r control.Object
	files, err := d.open(ctx, control.OpCapture, args, &r, 1)
	if err != nil {
		return nil, err
	}
	return &Capture{os.NewFile(uintptr(files[0]), "capture"), object{dev: d, handle: r.Handle}}, nil
}

// End ends the capture, if it still goes on, and says how it was. Another goroutine must read the
// file meanwhile.
func (c *Capture) End(ctx context.Context) (r control.CaptureResult, err error) {
	err = c.call(ctx, control.OpEndCapture, &r)
	return r, err
}
