package cp

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"xwarp/engine/transfer"
)

// counter counts the bytes of a stream.
type counter struct{ q *queue }

func (c counter) Write(b []byte) (int, error) {
	c.q.addProgress(int64(len(b)), false)
	return len(b), nil
}

// upStream copies Stdin to a file of the server. If the file exists, its new version has the same permissions.
func (p *plan) upStream(ctx context.Context, dst string, there transfer.Attr) error {
	if there.Kind == transfer.KindDir {
		return fmt.Errorf("%s is a directory on the server: name a file in it", dst)
	}
	mode := there.Mode
	if there.Kind == transfer.KindNone {
		mask, err := umask()
		if err != nil {
			return err
		}
		mode = 0o666 &^ mask
	}
	p.queue.total = -1
	_, err := p.client.StoreFrom(ctx, dst, mode, io.TeeReader(p.cfg.Stdin, counter{p.queue}))
	return p.finishStream(dst, err)
}

// umask returns the umask of the process, which umask(2) cannot do without changing it for all threads.
func umask() (mask uint16, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "\nUmask:")
	if _, err = fmt.Sscanf(rest, "%o", &mask); err != nil {
		return 0, fmt.Errorf("the umask in /proc/self/status: %w", err)
	}
	return mask, nil
}

// downStream copies a file of the server to Stdout.
func (p *plan) downStream(ctx context.Context, src string) error {
	a, err := p.client.Stat(ctx, src)
	switch {
	case err != nil:
		return err
	case a.Kind == transfer.KindNone:
		return noSuchFile(src)
	case a.Kind == transfer.KindDir:
		return fmt.Errorf("%s is a directory, which cannot be copied to stdout", src)
	}
	p.queue.total = int64(a.Length)
	_, err = p.client.FetchTo(ctx, src, io.MultiWriter(p.cfg.Stdout, counter{p.queue}))
	return p.finishStream(src, err)
}

func (p *plan) finishStream(name string, err error) error {
	if err != nil {
		return p.skip(name, err)
	}
	p.queue.copied()
	return nil
}

func noSuchFile(name string) error { return fmt.Errorf("%s: no such file on the server", name) }
