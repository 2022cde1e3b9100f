package export

import (
	"context"

	"xwarp/engine/daemon/config"
	"xwarp/engine/transfer"
)

// openDirectory opens the directory and serves it to clients (xwarp cp) until ctx is done.
func (e *export) openDirectory(ctx context.Context) (err error) {
	if e.tree == nil { // otherwise takeContent has moved it here
		e.tree, err = transfer.OpenTree(transfer.TreeConfig{Path: e.cfg.Path,
			ReadOnly: e.cfg.Access == config.AccessRead, Size: int64(e.cfg.Size), Log: e.log})
		if err != nil {
			return err
		}
	}
	e.srv, err = transfer.Listen(transfer.ServerConfig{Device: e.dev.Core, Tree: e.tree,
		MaxClients: e.cfg.Connections, DSCP: e.cfg.DSCP, Stats: &e.count.Stats,
		Event: e.transferred}, e.cfg.Listen.All()...)
	if err != nil {
		return err
	}
	e.running.Go(func() {
		if err := e.srv.Serve(ctx); err != nil {
			e.log.Error("export stopped: it accepts no connections", "error", err)
		}
	})
	return nil
}

// used returns the sum of the files of the directory in bytes.
func (e *export) used() int64 {
	if e.tree == nil { // takeContent has moved it to another export
		return 0
	}
	byteCount, _ := e.tree.Used()
	return byteCount
}

func (e *export) transferred(v transfer.Event) {
	log := e.log
	if v.File != "" {
		log = log.With("file", v.File)
	}
	if v.Err != nil {
		log = log.With("error", v.Err)
	}
	log.Info("transfer", "op", v.Op, "remote", v.Remote, "bytes", v.Bytes,
		"seconds", v.Took.Seconds())
}
