package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Extent is a range of a file with data.
type Extent struct{ Offset, Length int64 }

// Extents returns the data ranges of the first length bytes of f, in order. A hole between two of them that is shorter
// than minHole counts as data.
func Extents(f *os.File, length int64) (list []Extent, err error) {
	fd := int(f.Fd())
	for at := int64(0); at < length; {
		begin, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // the rest is a hole
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(fd, begin, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		begin, end = min(begin, length), min(end, length)
		if n := len(list); n > 0 && begin-list[n-1].end() < minHole {
			list[n-1].Length = end - list[n-1].Offset
		} else if end > begin {
			list = append(list, Extent{begin, end - begin})
		}
		at = max(end, at+1)
	}
	return list, nil
}

// writeAt writes b to f. In a sparse file it turns blocks of zeros into holes, because a resumed file may have data
// there.
func writeAt(f *os.File, b []byte, off int64, sparse bool) (err error) {
	step := len(b)
	if sparse {
		step = minHole
	}
	for len(b) > 0 && err == nil {
		n := min(step, len(b))
		if !sparse || !isZero(b[:n]) || punch(f, off, int64(n)) != nil {
			_, err = f.WriteAt(b[:n], off)
		}
		b, off = b[n:], off+int64(n)
	}
	return err
}

func isZero(b []byte) bool { return b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// punch makes n bytes a hole.
func punch(f *os.File, off, n int64) error {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	return unix.Fallocate(int(f.Fd()), mode, off, n)
}

func (e Extent) end() int64 { return e.Offset + e.Length }

// extentLen is the length of an extent on the wire: offset and length, in 8 bytes each.
const extentLen = 16

func appendExtents(b []byte, list []Extent) []byte {
	for i := range list {
		b, _ = binary.Append(b, binary.BigEndian, &list[i])
	}
	return b
}

// parseExtents reads the extents of a file of length bytes.
func parseExtents(b []byte, length int64) (list []Extent, err error) {
	if len(b)%extentLen != 0 {
		return nil, ErrBody
	}
	at := int64(0)
	for ; len(b) > 0; b = b[extentLen:] {
		var e Extent
		_, err := binary.Decode(b, binary.BigEndian, &e)
		if err != nil || e.Offset < at || e.Length <= 0 || e.Offset > length ||
			e.Length > length-e.Offset {
			return nil, ErrBody
		}
		list, at = append(list, e), e.end()
	}
	return list, nil
}
