package api

import (
	"net/http"

	"sandbar/guest-agent/internal/volumes"
)

// putMount mounts a volume. While the root file system is frozen it waits, because it may have to create the mount
// point.
func (s *server) putMount(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		answerError(w, err)
		return
	}
	request, err := volumes.ParseRequest(body)
	if err != nil {
		answerError(w, err)
		return
	}
	if err := s.Gate.Await(r.Context()); err != nil {
		answerError(w, err)
		return
	}
	answerDone(w, s.Volumes.Mount(r.Context(), r.PathValue("id"), request))
}

func (s *server) deleteMount(w http.ResponseWriter, r *http.Request) {
	answerDone(w, s.Volumes.Unmount(r.PathValue("id")))
}
