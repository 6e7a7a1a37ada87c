module sandbar/guest-agent

go 1.24.0

require (
	github.com/vishvananda/netlink v1.3.1
	golang.org/x/sys v0.36.0
)

require github.com/vishvananda/netns v0.0.5 // indirect
