package explain

import (
	"embed"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

//go:embed texts
var texts embed.FS

// table returns a function that returns the entries of texts/NAME.toml for all names. It reads the files on its first
// call.
func table(kind Kind, names ...string) func() []Entry {
	return sync.OnceValue(func() (list []Entry) {
		for _, name := range names {
			list = append(list, read(kind, name)...)
		}
		return list
	})
}

// read returns the entries of texts/NAME.toml. It derives the bytes and section of a Terminate, and the name of a
// status in libibverbs, from the code.
func read(kind Kind, name string) []Entry {
	var file struct {
		Spec  string            // of all entries
		Words map[string]string // remedies, by the word that stands for them after "@"
		Entry []Entry
	}
	if _, err := toml.DecodeFS(texts, "texts/"+name+".toml", &file); err != nil {
		panic(err) // the files are part of the program
	}
	for i := range file.Entry {
		e := &file.Entry[i]
		e.Kind, e.Spec = kind, file.Spec
		for j, s := range e.Remedy {
			if word, ok := strings.CutPrefix(s, "@"); ok {
				e.Remedy[j] = file.Words[word]
			}
		}
		switch kind {
		case Terminate:
			c, _ := causeOf(e.Code)
			e.Bytes, e.Spec = wireBytes(c), section(c)
		case Status:
			e.Name = "IBV_WC_" + e.Code
		}
	}
	return file.Entry
}
