// Package plainjson reads the JSON that the host sends in most requests: one object whose strings need no escapes.
// encoding/json reads each type by reflection, and under emulation each new clone would translate that code. A Reader knows only the plain
// forms below. Whenever it finds anything else, correct or not, it fails, and the caller gives the whole text to
// encoding/json, which decides what the text means and what is wrong with it.
package plainjson

import (
	"bytes"
	"encoding/base64"
	"slices"
)

// maxDigits is how many digits a number may have.
const maxDigits = 18

// Reader reads a text from its beginning to its end. After a failure, all its methods do nothing.
type Reader struct {
	rest   []byte
	failed bool
}

// Read reads text as an object with fields of these names (at most 64), each at most once. It calls field for each one,
// which must read the value. It reports whether all of the text was read.
func Read(text []byte, names []string, field func(r *Reader, name string)) bool {
	r := &Reader{rest: text}
	var seen uint64
	r.object(func(r *Reader, name string) {
		i := slices.Index(names, name)
		if i < 0 || seen>>i&1 != 0 {
			r.fail()
			return
		}
		seen |= 1 << i
		field(r, names[i])
	})
	return !r.failed && len(r.rest) == 0
}

func (r *Reader) fail() {
	r.failed = true
	r.rest = nil
}

// Text reads a string of printable ASCII characters without escapes.
func (r *Reader) Text() string { return string(r.raw()) }

// Bytes reads a string in base64.
func (r *Reader) Bytes() []byte {
	raw := r.raw()
	content := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Decode(content, raw)
	if err != nil {
		r.fail()
	}
	return content[:n]
}

// Int reads a number without fraction and exponent.
func (r *Reader) Int() int64 {
	if r.skip('-') {
		return -int64(r.Uint())
	}
	return int64(r.Uint())
}

// Uint reads a number without sign, fraction and exponent. It is at most 10^18 - 1, so it also fits in an int64.
func (r *Reader) Uint() (value uint64) {
	digits := 0
	for digits < len(r.rest) && r.rest[digits] >= '0' && r.rest[digits] <= '9' {
		value = value*10 + uint64(r.rest[digits]-'0')
		digits++
		if digits > maxDigits {
			r.fail()
			return 0
		}
	}
	if digits == 0 || digits > 1 && r.rest[0] == '0' {
		r.fail()
		return 0
	}
	r.rest = r.rest[digits:]
	return value
}

// Bool reads true or false.
func (r *Reader) Bool() bool {
	rest, isTrue := bytes.CutPrefix(r.rest, []byte("true"))
	if !isTrue {
		var isFalse bool
		if rest, isFalse = bytes.CutPrefix(r.rest, []byte("false")); !isFalse {
			r.fail()
			return false
		}
	}
	r.rest = rest
	return isTrue
}

// Texts reads an array of strings. It returns an empty slice, not nil, for an empty array.
func (r *Reader) Texts() []string {
	list := []string{}
	r.expect('[')
	if r.skip(']') {
		return list
	}
	for !r.failed {
		list = append(list, r.Text())
		if r.skip(']') {
			break
		}
		r.expect(',')
	}
	return list
}

// Map reads an object whose values are strings.
func (r *Reader) Map() map[string]string {
	values := make(map[string]string)
	r.object(func(r *Reader, name string) { values[name] = r.Text() })
	return values
}

func (r *Reader) object(field func(r *Reader, name string)) {
	r.expect('{')
	if r.skip('}') {
		return
	}
	for !r.failed {
		name := r.Text()
		r.expect(':')
		field(r, name)
		if r.skip('}') {
			return
		}
		r.expect(',')
	}
}

// raw reads a string, and returns what is between its quotes.
func (r *Reader) raw() []byte {
	r.expect('"')
	for i, c := range r.rest {
		if c == '"' {
			text := r.rest[:i]
			r.rest = r.rest[i+1:]
			return text
		}
		if c == '\\' || c < ' ' || c > '~' {
			break
		}
	}
	r.fail()
	return nil
}

// skip skips the next character if it is c, and reports whether it was.
func (r *Reader) skip(c byte) bool {
	if len(r.rest) == 0 || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

func (r *Reader) expect(c byte) {
	if !r.skip(c) {
		r.fail()
	}
}
