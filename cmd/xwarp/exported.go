package main

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"xwarp/engine/transfer"
)

// exported is the object that serve exports: anonymous memory, a file or a directory.
type exported struct {
	size     size
	file     transfer.FileConfig
	dir      string
	readOnly bool
}

func (e *exported) addFlags(f *pflag.FlagSet) {
	f.Var(&e.size, "size", "bytes of the region, such as 1GiB (default with --file: its length); "+
		"with --dir the most that all files may have (default: no limit)")
	f.StringVar(&e.file.Path, "file", "", "export this `FILE`, which is created if it does not "+
		"exist")
	f.BoolVar(&e.file.InPlace, "in-place", false, "have puts overwrite the file, through a "+
		"journal, instead of giving its name to another one")
	f.StringVar(&e.dir, "dir", "", "export this `DIRECTORY`, for xwarp cp")
	f.BoolVar(&e.readOnly, "read-only", false, "let nobody write to the directory")
}

func (e *exported) validate() error {
	switch {
	case e.dir != "" && e.file.Path != "":
		return usagef("--dir and --file are two things to export: one serve has one")
	case e.size == 0 && e.file.Path == "" && e.dir == "":
		return usagef("how large shall the region be? Say it with --size, or name a --file or a --dir")
	case e.file.InPlace && e.file.Path == "":
		return usagef("--in-place is for --file")
	case e.readOnly && e.dir == "":
		return usagef("--read-only is for --dir")
	}
	return nil
}

// openExport opens it; the Closer gives it back.
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
