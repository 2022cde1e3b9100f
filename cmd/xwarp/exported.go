package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"xwarp/engine/transfer"
)

// exported is the object of serve: anonymous memory, a file or a directory.
type exported struct {
	size     size
	file     transfer.FileConfig
	dir      string
	readOnly bool
}

func (e *exported) addFlags(f *pflag.FlagSet) {
	f.Var(&e.size, "size", "size of the region, such as 1GiB (default with --file: its length); "+
		"with --dir, limit for all files together (default: none)")
	f.StringVar(&e.file.Path, "file", "", "export this `FILE`; created if it does not exist")
	f.BoolVar(&e.file.InPlace, "in-place", false, "overwrite the file in place, through a "+
		"journal, instead of replacing it")
	f.StringVar(&e.dir, "dir", "", "export this `DIRECTORY` for xwarp cp")
	f.BoolVar(&e.readOnly, "read-only", false, "export the directory read-only")
}

func (e *exported) validate() error {
	switch {
	case e.dir != "" && e.file.Path != "":
		return usagef("--dir and --file exclude each other")
	case e.size == 0 && e.file.Path == "" && e.dir == "":
		return usagef("nothing to export: set --size, --file or --dir")
	case e.file.InPlace && e.file.Path == "":
		return usagef("--in-place needs --file")
	case e.readOnly && e.dir == "":
		return usagef("--read-only needs --dir")
	}
	return nil
}

// openExport opens the object. The Closer releases it.
func (e *exported) openExport(log *slog.Logger) (cfg transfer.ServerConfig, c io.Closer,
	err error) {
	switch {
	case e.dir != "":
		cfg.Tree, err = transfer.OpenTree(transfer.TreeConfig{
			Path: e.dir, ReadOnly: e.readOnly, Size: int64(e.size), Log: log,
		})
		return cfg, cfg.Tree, err
	case e.file.Path != "":
		e.file.Size, e.file.Log = int64(e.size), log
		cfg.Region, err = transfer.OpenRegion(e.file)
	default:
		cfg.Region, err = transfer.NewRegion(int64(e.size))
	}
	return cfg, cfg.Region, err
}
