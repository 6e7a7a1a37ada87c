package main

import "unsafe"

// sysFinitModule is finit_module(2) on x86-64, which package syscall does not name.
const sysFinitModule = 313

var noParameters = [1]byte{0}

// emptyText is the address of a C string without characters: a module's parameters.
func emptyText() uintptr {
	return uintptr(unsafe.Pointer(&noParameters[0]))
}
