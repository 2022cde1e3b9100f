package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/guard"
	"xwarp/engine/plain"
	"xwarp/engine/verbs"
	"xwarp/ring/monitor"
	"xwarp/ring/pcapng"
)

// captureBuffer is the maximum number of unread bytes in the stream to a program, if the kernel allows it.
const captureBuffer = 1 << 20

// capture is one capture of a session.
type capture struct {
	object
	tap       *monitor.Capture
	maxFrames uint64 // 0: no limit
	out       *os.File
	stopped   chan struct{} // closed to end the capture with the frames captured so far
	once      sync.Once
	done      chan struct{}
	result    control.CaptureResult // valid when done is closed
}

func (*capture) String() string { return "capture" }

// mayCapture returns an error unless the session may start the capture that a asks for. A capture shows the frames of
// all users: only the operator and members of daemon.capture_group may start one, and only the operator a decrypted
// one.
func (s *Session) mayCapture(a *control.CaptureArgs) error {
	if a.Decrypted {
		return s.onlyOperator("capture with decrypted frames of IPsec")
	}
	group := s.d.Config().Daemon.CaptureGroup
	if group != "" && s.account.Tenant == "" && member(s.cred, group) {
		return nil
	}
	return s.onlyOperator("capture, which shows the data of all users, and members of " +
		"daemon.capture_group")
}

// member reports whether a user belongs to a group.
func member(c *unix.Ucred, group string) bool {
	id, err := config.GroupID(group)
	if err != nil {
		return false
	}
	if uint32(id) == c.Gid {
		return true
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(c.Uid), 10))
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, strconv.Itoa(id))
}

func (s *Session) startCapture(a *control.CaptureArgs) (any, error) {
	if err := s.mayCapture(a); err != nil {
		return nil, err
	}
	if len(a.Flows) > control.MaxCaptureFlows || a.SnapLen < 0 {
		return nil, fmt.Errorf("%w: capture of %s (at most %d) with %d bytes "+
			"per frame", verbs.ErrInvalid, plain.Count(len(a.Flows), "connection"),
			control.MaxCaptureFlows, a.SnapLen)
	}
	hub, err := s.dev.CaptureHub()
	if err != nil {
		return nil, err
	}
	c := monitor.Config{Snap: a.SnapLen, Decrypted: a.Decrypted}
	c.Remote, c.Port = a.Remote, a.Port
	for _, f := range a.Flows {
		c.Flows = append(c.Flows, monitor.Flow(f))
	}
	write, read, err := control.NewStream("capture", captureBuffer)
	if err != nil {
		return nil, err
	}
	t, err := hub.Start(c)
	if err != nil {
		unix.Close(read)
		write.Close()
		return nil, control.Errorf(control.CodeBusy, "%v", err)
	}
	v := &capture{tap: t, maxFrames: a.Frames, out: write, stopped: make(chan struct{}),
		done: make(chan struct{})}
	s.mu.Lock()
	s.addObject(v)
	s.mu.Unlock()
	s.log.Info("capture started", "device", s.dev.Name)
	go func() {
		defer guard.Recover(s.onDefect("a capture"))
		v.writeLoop()
	}()
	return withFiles{control.Object{Handle: v.handle}, []int{read}}, nil
}

// stop ends the capture with the frames captured so far.
func (c *capture) stop() { c.once.Do(func() { close(c.stopped) }) }

// abort ends the capture at once.
func (c *capture) abort() {
	c.stop()
	c.out.Close()
	<-c.done
}

// writeLoop writes the file until the capture ends.
func (c *capture) writeLoop() {
	defer close(c.done)
	defer c.out.Close()
	out := bufio.NewWriterSize(c.out, 1<<18)
	file := pcapng.NewFile(out)
	ids := map[string]int{}
	var err error
	for _, name := range c.tap.Ports() {
		if ids[name], err = file.AddInterface(name); err != nil {
			break
		}
	}
	if err == nil {
		err = c.copy(file, out, ids)
	}
	c.tap.Stop()
	c.result.Start = c.tap.StartFrames()
	for i, name := range c.tap.Ports() {
		dropped := c.tap.Dropped(i)
		c.result.Dropped += dropped
		if err == nil {
			err = file.WriteStats(ids[name], time.Now().UnixNano(), c.tap.Seen(i), dropped)
		}
	}
	if err == nil {
		err = errors.Join(file.Flush(), out.Flush())
	}
	c.result.Error = verbs.ErrorText(err)
}

// captureIdle is how long copy sleeps if there are no frames.
const captureIdle = time.Millisecond

// copy writes frames until the capture ends.
func (c *capture) copy(file *pcapng.File, out *bufio.Writer, ids map[string]int) error {
	ending := false
	for c.maxFrames == 0 || c.result.Frames < c.maxFrames {
		f, ok := c.tap.Poll()
		if ok {
			if err := file.Write(ids[f.Port], f.Time, f.Data, f.Length); err != nil {
				return err
			}
			c.result.Frames++
			continue
		}
		if ending {
			return nil
		}
		if err := errors.Join(file.Flush(), out.Flush()); err != nil {
			return err
		}
		select {
		case <-c.stopped:
			c.tap.Stop()
			ending = true // read the earlier frames first
		case <-time.After(captureIdle):
		}
	}
	return nil
}

// endCapture ends a capture and returns its result.
func (s *Session) endCapture(ctx context.Context, a *control.Object) (any, error) {
	c, err := find[*capture](s, a.Handle)
	if err != nil {
		return nil, err
	}
	c.stop()
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	s.removeObject(c)
	s.mu.Unlock()
	s.log.Info("capture ended", "device", s.dev.Name, "frames", c.result.Frames, "dropped",
		c.result.Dropped)
	return c.result, nil
}
