package matrix

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// Names of the files in the results directory, beside the plots.
const (
	FileJSON     = "results.json"
	FileMarkdown = "results.md"
)

// Save writes JSON, Markdown and plots into dir.
func (res *Results) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	j, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, FileJSON), append(j, '\n'), 0o644); err != nil {
		return err
	}
	var md bytes.Buffer
	if err := res.WriteMarkdown(&md); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, FileMarkdown), md.Bytes(), 0o644); err != nil {
		return err
	}
	return res.Plots(dir)
}
