package jobs

import (
	"encoding/json"
	"strconv"
)

// JSON returns the status as encoding/json would encode it, but without reflection, which is slow in a new clone.
func (s *Status) JSON() []byte {
	b := make([]byte, 0, 512)
	b = appendText(append(b, `{"id":`...), s.ID)
	b = appendText(append(b, `,"status":`...), string(s.State))
	b = append(b, `,"exit_code":`...)
	if s.ExitCode == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(*s.ExitCode), 10)
	}
	b = append(b, `,"signal":`...)
	if s.Signal == nil {
		b = append(b, "null"...)
	} else {
		b = appendText(b, *s.Signal)
	}
	b = strconv.AppendInt(append(b, `,"stdout_bytes":`...), s.StdoutBytes, 10)
	b = strconv.AppendInt(append(b, `,"stderr_bytes":`...), s.StderrBytes, 10)
	b = strconv.AppendBool(append(b, `,"truncated":`...), s.Truncated)
	b = strconv.AppendInt(append(b, `,"started_unix_ms":`...), s.StartedUnixMs, 10)
	b = appendOptional(append(b, `,"finished_unix_ms":`...), s.FinishedUnixMs)
	b = appendOptional(append(b, `,"stdin_bytes":`...), s.StdinBytes)
	return append(b, '}')
}

func appendOptional(b []byte, value *int64) []byte {
	if value == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, *value, 10)
}

// appendText appends a string in quotes. Ids, states and names of signals need no escapes. Others go to encoding/json.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(text) // cannot fail for a string
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
