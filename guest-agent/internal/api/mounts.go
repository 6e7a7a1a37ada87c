package api

import (
	"sandbar/guest-agent/internal/fault"
	"sandbar/guest-agent/internal/frames"
	"sandbar/guest-agent/internal/volumes"
)

// putMount mounts a volume. While the root file system is frozen it waits, because it may have to create the mount
// point.
func (s *server) putMount(c *frames.Call, id string) {
	if id == "" {
		answerError(c, fault.New(fault.NotFound, "no volume id"))
		return
	}
	request, err := volumes.ParseRequest(c.Body)
	if err != nil {
		answerError(c, err)
		return
	}
	if err := await(c, s.Gate); err != nil {
		answerError(c, err)
		return
	}
	answerDone(c, s.Volumes.Mount(c.Context(), id, request))
}
