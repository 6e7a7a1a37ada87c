package files

import (
	"strings"

	"sandbar/guest-agent/internal/fault"
)

// The limits of Linux for paths and names, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

// Path is an absolute path of the machine in its bytes, which need not be UTF-8. It has no empty parts and no ".",
// except that the root folder is "/". It may have "..", which the kernel resolves. In JSON every byte except letters,
// digits and - . _ ~ / is percent-encoded.
type Path string

const upperHex = "0123456789ABCDEF"

// isPlain reports whether a byte stands for itself in JSON.
func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~' || c == '/'
}

// encode returns the percent-encoded text of any bytes.
func encode(raw string) string {
	if size := encodedLen(raw); size != len(raw) {
		text := make([]byte, 0, size)
		for i := range len(raw) {
			if c := raw[i]; isPlain(c) {
				text = append(text, c)
			} else {
				text = append(text, '%', upperHex[c>>4], upperHex[c&15])
			}
		}
		return string(text)
	}
	return raw
}

func encodedLen(raw string) int {
	size := len(raw)
	for i := range len(raw) {
		if !isPlain(raw[i]) {
			size += 2
		}
	}
	return size
}

// decodeText returns the bytes of a percent-encoded text.
func decodeText(text string) (string, error) {
	raw := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '%' && i+2 < len(text) && unhex(text[i+1]) < 16 && unhex(text[i+2]) < 16:
			c = unhex(text[i+1])<<4 | unhex(text[i+2])
			i += 2
		case c == '%':
			return "", invalid("a % in a path is not followed by two hexadecimal digits")
		case c >= 0x80:
			return "", invalid("a path has a byte that is not percent-encoded")
		}
		raw = append(raw, c)
	}
	return string(raw), nil
}

// unhex returns the value of a hexadecimal digit, or 16.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}

// parsePath checks the bytes of a path and brings it into its shortest form.
func parsePath(raw string) (Path, error) {
	switch {
	case !strings.HasPrefix(raw, "/"):
		return "", invalid("a path is not absolute: " + display(raw))
	case strings.IndexByte(raw, 0) >= 0:
		return "", invalid("a path has a null byte")
	}
	clean := new(strings.Builder)
	for name := range strings.SplitSeq(raw, "/") {
		if len(name) > maxName {
			return "", invalid("a name of a path has more than 255 bytes: " + display(raw))
		}
		if name != "" && name != "." {
			clean.WriteByte('/')
			clean.WriteString(name)
		}
	}
	if clean.Len() == 0 {
		return "/", nil
	}
	return Path(clean.String()), nil
}

// Bytes is any text of the machine that is percent-encoded in JSON like a Path.
type Bytes string

// MarshalText returns the percent-encoded bytes.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(encode(string(b))), nil }

// UnmarshalText reads percent-encoded bytes.
func (b *Bytes) UnmarshalText(text []byte) error {
	raw, err := decodeText(string(text))
	*b = Bytes(raw)
	return err
}

// MarshalText returns the percent-encoded path.
func (p Path) MarshalText() ([]byte, error) { return []byte(encode(string(p))), nil }

// UnmarshalText reads a percent-encoded path.
func (p *Path) UnmarshalText(text []byte) error {
	raw, err := decodeText(string(text))
	if err != nil {
		return err
	}
	if len(raw) > maxPath {
		return invalid("a path has more than 4096 bytes")
	}
	*p, err = parsePath(raw)
	return err
}

// mustBe returns an error if the request did not contain this path.
func (p Path) mustBe() error {
	if p == "" {
		return invalid("a path is missing")
	}
	return nil
}

// split returns the folder of the path and the last name. For the root folder the name is ".".
func (p Path) split() (folder Path, name string) {
	slash := strings.LastIndexByte(string(p), '/')
	folder, name = p[:max(slash, 1)], string(p[slash+1:])
	if name == "" {
		name = "."
	}
	return folder, name
}

// join returns the path of a name in the folder p.
func (p Path) join(name string) Path {
	if p == "/" {
		return Path("/" + name)
	}
	return p + "/" + Path(name)
}

// mustName returns an error unless the last part of the path is a name that a request can make, move or remove.
func (p Path) mustName() error {
	if err := p.mustBe(); err != nil {
		return err
	}
	switch _, name := p.split(); name {
	case ".":
		return fault.New(fault.Conflict, "this is not possible for the root folder /")
	case "..":
		return invalid("the last part of the path is ..: " + p.String())
	}
	return nil
}

// String returns the path for an error text.
func (p Path) String() string { return display(string(p)) }

// maxDisplay is how many bytes of a path an error text shows.
const maxDisplay = 300

// display returns any bytes as UTF-8 text. It shows the end of a long path.
func display(raw string) string {
	if len(raw) > maxDisplay {
		raw = "…" + raw[len(raw)-maxDisplay:]
	}
	return strings.ToValidUTF8(raw, "\uFFFD")
}
