// Lists tar archives with the reader that umoci uses: Go's archive/tar. Reads archives from standard input, each after
// its length (four bytes, big endian), and writes one line of JSON for each.
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// An entry has its text in base64, because names are bytes and JSON is Unicode.
type entry struct {
	Name string `json:"name"`
	Link string `json:"link"`
	Type string `json:"type"`
	Size int64  `json:"size"`
}

type listing struct {
	Entries []entry `json:"entries"`
	Error   string  `json:"error,omitempty"`
}

func main() {
	input := bufio.NewReader(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for {
		var length uint32
		if err := binary.Read(input, binary.BigEndian, &length); errors.Is(err, io.EOF) {
			return
		}
		archive := make([]byte, length)
		if _, err := io.ReadFull(input, archive); err != nil {
			panic(err)
		}
		if err := output.Encode(list(archive)); err != nil {
			panic(err)
		}
	}
}

func list(archive []byte) listing {
	found := listing{Entries: []entry{}}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		var size int64
		if err == nil {
			size, err = io.Copy(io.Discard, reader)
		}
		if err != nil {
			found.Error = err.Error()
			return found
		}
		text := func(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }
		found.Entries = append(found.Entries, entry{
			Name: text(header.Name),
			Link: text(header.Linkname),
			Type: string(header.Typeflag),
			Size: size,
		})
	}
}
