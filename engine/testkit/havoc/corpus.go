package havoc

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
)

// write writes an input where go test finds it, and returns the command that runs it again.
func write(name string, args []reflect.Value) string {
	text := encode(args)
	dir := filepath.Join("testdata", "fuzz", name)
	file := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256(text))[:16])
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		return fmt.Sprintf("cannot write the input: %v\n%s", err, text)
	}
	return fmt.Sprintf("go test -run '%s/%s'", name, filepath.Base(file))
}

// encode formats an input for the corpus of go test.
func encode(args []reflect.Value) []byte {
	b := bytes.NewBufferString("go test fuzz v1\n")
	for _, v := range args {
		form := "%v(%v)\n"
		switch v.Kind() {
		case reflect.Slice, reflect.String:
			form = "%v(%q)\n"
		}
		name := v.Type().String()
		if v.Kind() == reflect.Slice {
			name = "[]byte"
		}
		fmt.Fprintf(b, form, name, v.Interface())
	}
	return b.Bytes()
}
