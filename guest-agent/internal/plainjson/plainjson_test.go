package plainjson

import (
	"encoding/json"
	"reflect"
	"testing"
)

type everything struct {
	Text  string            `json:"text"`
	Bytes []byte            `json:"bytes"`
	Int   int64             `json:"int"`
	Uint  uint64            `json:"uint"`
	Bool  bool              `json:"bool"`
	Texts []string          `json:"texts"`
	Map   map[string]string `json:"map"`
}

func read(text []byte) (*everything, bool) {
	found := new(everything)
	ok := Read(text, []string{"text", "bytes", "int", "uint", "bool", "texts", "map"}, func(r *Reader, name string) {
		switch name {
		case "text":
			found.Text = r.Text()
		case "bytes":
			found.Bytes = r.Bytes()
		case "int":
			found.Int = r.Int()
		case "uint":
			found.Uint = r.Uint()
		case "bool":
			found.Bool = r.Bool()
		case "texts":
			found.Texts = r.Texts()
		case "map":
			found.Map = r.Map()
		}
	})
	return found, ok
}

func TestPlainTextsAreRead(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"text":"a b~!","int":-120,"bool":true,"bytes":"aGk=","texts":["a",""],"map":{"A":"b","C":"","A":"c"}}`,
		`{"int":0,"bool":false,"bytes":"","texts":[],"map":{}}`,
		`{"int":999999999999999999,"uint":0}`,
	} {
		var want everything
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if got, ok := read([]byte(text)); !ok || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
}

func TestAnythingElseIsLeftToTheCaller(t *testing.T) {
	for _, text := range []string{
		``, `{`, `{"text":"a"`, `{"text":"a"}}`, `{"text":"a"} `, ` {}`, `{"text": "a"}`, `{"text":"a",}`, `{,}`, `{"text"}`, `null`, `[]`,
		`{"text":null}`, `{"text":"\u0041"}`, `{"text":"ä"}`, "{\"text\":\"\n\"}", "{\"text\":\"\x7f\"}", "{\"text\":\"\xff\"}", `{"text":"a`, `{"text":1}`,
		`{"int":01}`, `{"int":-}`, `{"int":1.0}`, `{"int":1e1}`, `{"int":+1}`, `{"int":9999999999999999999}`, `{"int":"1"}`, `{"int":}`, `{"uint":-1}`, `{"uint":00}`, `{"uint":x}`,
		`{"bool":tru}`, `{"bool":1}`, `{"bytes":"aGk"}`, `{"bytes":"!"}`, `{"texts":["a",]}`, `{"texts":["a" "b"]}`, `{"texts":[null]}`, `{"texts":["a"`,
		`{"map":{"a":1}}`, `{"map":{"a"}}`, `{"other":1}`, `{"Text":"a"}`, `{"text":"a","text":"b"}`,
	} {
		if got, ok := read([]byte(text)); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// What the reader reads means the same to encoding/json.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"text":"a","int":-1,"uint":20,"bool":true,"bytes":"aGk=","texts":["a","b"],"map":{"A":"b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := read(text)
		if !ok {
			return
		}
		var want everything
		if err := json.Unmarshal(text, &want); err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: %+v, %+v, %v", text, got, want, err)
		}
	})
}
