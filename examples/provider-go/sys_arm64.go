package main

// What package syscall has no number for.
const sysSyncfs = 267
