package vm

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Script runs a shell script that ends at the first command that fails, writes both it and what it printed to
// log, and returns what it printed. An error is its last words.
func (v *VM) Script(log io.Writer, script string, timeout time.Duration) (string, error) {
	fmt.Fprintf(log, "$ %s\n", script)
	begin := time.Now()
	out, code, err := v.Run("set -e\n"+script, timeout)
	fmt.Fprintf(log, "%s[%d, %.1f s]\n", out, code, time.Since(begin).Seconds())
	said := strings.TrimSpace(out)
	last := said[strings.LastIndexByte(said, '\n')+1:]
	if err != nil && v.Running() {
		err = fmt.Errorf("no end within %v; the last words: %s", timeout, last)
	}
	if err == nil && code != 0 {
		err = errors.New(last)
	}
	return out, err
}
