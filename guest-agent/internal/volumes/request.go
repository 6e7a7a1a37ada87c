package volumes

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"sandbar/guest-agent/internal/fault"
)

// slots is how many volumes a machine may have.
const slots = 8

// Request asks to mount the volume in a slot at a path.
type Request struct {
	Slot int    `json:"slot"` // the SCSI id of the disk, 0 to 7
	Path string `json:"path"`
}

// ParseRequest reads the JSON of a request and checks it.
func ParseRequest(body []byte) (Request, error) {
	request := Request{Slot: -1}
	if err := json.Unmarshal(body, &request); err != nil {
		return request, invalid("the body is not a mount: " + err.Error())
	}
	if request.Slot < 0 || request.Slot >= slots {
		return request, invalid("slot is not within 0 and 7")
	}
	if request.Path == "/" || !filepath.IsAbs(request.Path) || filepath.Clean(request.Path) != request.Path ||
		strings.ContainsRune(request.Path, 0) {
		return request, invalid("path is not an absolute path in its shortest form, or is the root")
	}
	return request, nil
}

func invalid(detail string) error  { return fault.New(fault.Validation, detail) }
func conflict(detail string) error { return fault.New(fault.Conflict, detail) }
func internal(detail string) error { return fault.New(fault.Internal, detail) }
