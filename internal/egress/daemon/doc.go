// Package daemon is what the commands checkfu-guard and checkfu-relay have in
// common: where their inputs lie, in which order they begin, and how they end.
//
//	0  its life: at end of file the process ends, as it does when its starter dies
//	1  the first line of the log, once it is written: the process serves
//	2  why it could not begin, or crashed
//	3  the configuration, at most MaxConfig bytes; read to its end and closed
//	4  the log
//	5  the listener, TCP or UNIX
//
// The configuration is read and refused before the process is confined, and
// nothing else is: no connection is accepted before confine.Self has returned.
// There are no inputs but these: no environment and no file.
//
// Trusts: whoever started it. Does not trust: who connects.
// Errors: Main answers an exit code and says one line on descriptor 2.
// Source: design "Egress".
package daemon
