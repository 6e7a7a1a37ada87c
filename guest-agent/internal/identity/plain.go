package identity

import (
	"encoding/json"

	"sandbar/guest-agent/internal/plainjson"
)

var requestFields = []string{
	"machine_id", "system_id", "hostname", "address", "gateway", "dns", "mac", "mtu", "time_unix_ms", "entropy", "disk_bytes",
	"was_held",
}

// read reads the JSON of a request or a claim. Every create waits for this, and encoding/json is slow in a new clone, so
// it reads only what readPlain does not understand.
func read(body []byte) (*Request, error) {
	if request, ok := readPlain(body); ok {
		return request, nil
	}
	request := new(Request)
	return request, json.Unmarshal(body, request)
}

// readPlain reads plain JSON. It returns false for any other text.
func readPlain(body []byte) (*Request, bool) {
	request := new(Request)
	ok := plainjson.Read(body, requestFields, func(r *plainjson.Reader, name string) {
		switch name {
		case "machine_id":
			request.MachineID = r.Text()
		case "system_id":
			request.SystemID = r.Text()
		case "hostname":
			request.Hostname = r.Text()
		case "address":
			request.Address = r.Text()
		case "gateway":
			request.Gateway = r.Text()
		case "dns":
			request.DNS = r.Texts()
		case "mac":
			request.MAC = r.Text()
		case "mtu":
			request.MTU = int(r.Int())
		case "time_unix_ms":
			request.TimeUnixMs = r.Int()
		case "entropy":
			request.Entropy = r.Bytes()
		case "disk_bytes":
			request.DiskBytes = r.Uint()
		case "was_held":
			request.WasHeld = r.Bool()
		}
	})
	return request, ok
}
