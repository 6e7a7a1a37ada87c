package main

import "unsafe"

// sysFinitModule is the number of finit_module(2) on x86-64. Package syscall has no constant for it.
const sysFinitModule = 313

var noParameters = [1]byte{0}

// emptyText returns the address of an empty C string, for a module without parameters.
func emptyText() uintptr {
	return uintptr(unsafe.Pointer(&noParameters[0]))
}
