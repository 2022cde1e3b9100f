package export

import (
	"context"

	"xwarp/engine/daemon/config"
	"xwarp/engine/transfer"
)

// openTransfer opens the content and serves put, get and cp until ctx is done.
func (e *export) openTransfer(ctx context.Context) (err error) {
	cfg := transfer.ServerConfig{
		Device: e.dev.Core, MaxClients: e.cfg.Connections, Event: e.transferred,
	}
	if err := e.openContent(); err != nil {
		return err
	}
	cfg.Region, cfg.Tree = e.region, e.tree
	if e.srv, err = transfer.Listen(cfg, e.cfg.Listen.All()...); err != nil {
		return err
	}
	if e.region != nil {
		e.running.Go(func() { e.watchMemory(ctx, e.region.Failed(), e.region.Err) })
	}
	e.running.Go(func() {
		if err := e.srv.Serve(ctx); err != nil {
			e.log.Error("export ended", "error", err)
		}
	})
	return nil
}

func (e *export) openContent() (err error) {
	size := int64(e.cfg.Size)
	switch {
	case e.region != nil || e.tree != nil: // takeContent has moved it here
		return nil
	case e.cfg.Serve == config.ServeDirectory:
		e.tree, err = transfer.OpenTree(transfer.TreeConfig{
			Path: e.cfg.Path, ReadOnly: e.cfg.Access == config.AccessRead, Size: size, Log: e.log,
		})
	case e.cfg.Memory == config.MemoryFile:
		e.region, err = transfer.OpenRegion(transfer.FileConfig{
			Path: e.cfg.Path, Size: size, InPlace: e.cfg.InPlace, Log: e.log,
		})
	default:
		e.region, err = transfer.NewRegion(size)
	}
	return err
}

// size returns the size of the region, or the sum of the files of the directory, in bytes.
func (e *export) size() int64 {
	switch {
	case e.region != nil:
		return e.region.Size()
	case e.tree == nil:
		return 0 // takeContent has moved it to another export
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
