#!/bin/sh
# A session that outlives its machine: a C project of 3,000 files is built in it,
# the session is paused, forked five times, and each fork changes and builds
# something else. None sees another, and each knows what was built before.
#
#   sudo checkfu image build-base --package gcc --package make
#   sudo examples/durable-session/run.sh
#
# CHECKFU, IMAGE and PROVIDER say with what. Nothing is left behind: the
# sessions are removed at the end, also of a run that fails.
set -eu
checkfu=${CHECKFU:-checkfu}
image=${IMAGE:-base}
provider=${PROVIDER:-native}
forks=${FORKS:-5}

sessions=
end() {
	status=$?
	trap - EXIT INT TERM
	[ -z "$sessions" ] || "$checkfu" session rm $sessions >/dev/null
	exit $status
}
trap end EXIT
trap 'exit 1' INT TERM

inside() { # SESSION SCRIPT
	"$checkfu" session exec "$1" --timeout 20m -- sh -euc "$2"
}

fail() {
	echo "durable-session: $*" >&2
	exit 1
}

# 1. A machine with a project: 30 modules of 100 files, and a Makefile.
id=$("$checkfu" session start --keep --quiet --image "$image" --provider "$provider" --memory 1GiB --disk 256MiB)
sessions=$id
inside "$id" '
mkdir project && cd project
awk "BEGIN {
	modules = 30; files = 100
	for (m = 0; m < modules; m++) {
		system(\"mkdir m\" m)
		unit = \"m\" m \"/unit.c\"
		for (f = 0; f < files; f++) {
			part = \"m\" m \"/part\" f \".h\"
			printf \"static int part%d(void) { return %d; }\n\", f, f > part
			close(part)
			printf \"#include \\\"part%d.h\\\"\n\", f > unit
		}
		printf \"int module%d(void) { return 0\", m > unit
		for (f = 0; f < files; f++) printf \" + part%d()\", f > unit
		printf \"; }\n\" > unit
		close(unit)
	}
	print \"int printf(const char *, ...);\" > \"main.c\"
	for (m = 0; m < modules; m++) printf \"int module%d(void);\n\", m > \"main.c\"
	printf \"int main(void) { return printf(\\\"%%d\\\\n\\\", 0\" > \"main.c\"
	for (m = 0; m < modules; m++) printf \" + module%d()\", m > \"main.c\"
	print \") < 0; }\" > \"main.c\"
}"
cat > Makefile <<"END"
units := $(patsubst %.c,%.o,$(wildcard m*/unit.c)) main.o
sum: $(units)
	@cc -o $@ $^
%.o: %.c
	@cc -c -o $@ $<
	@echo built $@

END
'
echo "files:  $(inside "$id" 'find project -type f | wc -l')"
inside "$id" 'make -C project >log'
echo "built:  $(inside "$id" 'grep -c "^built" log') objects"
sum=$(inside "$id" project/sum)
echo "sum:    $sum"

# 2. Paused: no process of it, and no memory. Its files are on the disk.
"$checkfu" session pause "$id" --quiet >/dev/null
"$checkfu" session ls

# 3. Forked, and all of them resumed, the source too.
copies=$("$checkfu" session fork "$id" --count "$forks" --quiet)
sessions="$id $copies"
"$checkfu" session resume --quiet $sessions >/dev/null

# 4. Each changes a module of its own, and builds that and nothing else: what was
#    built before the pause is as old as it was.
n=0
for fork in $copies; do
	n=$((n + 1))
	built=$(inside "$fork" "
		cd project
		echo 'static int part0(void) { return ${n}000; }' > m$n/part0.h
		echo mine > only-$n
		touch m$n/unit.c
		make >../log
		grep '^built' ../log")
	[ "$built" = "built m$n/unit.o" ] || fail "fork $n built: $built"
done

# 5. None sees another.
n=0
for fork in $copies; do
	n=$((n + 1))
	got=$(inside "$fork" 'project/sum; ls project | grep "^only-"')
	[ "$got" = "$((sum + n * 1000))
only-$n" ] || fail "fork $n has: $got"
	echo "fork $n: sum $((sum + n * 1000)), and only its own file"
done
got=$(inside "$id" 'project/sum; ls project | grep -c "^only-" || true; make -C project >log; grep -c "^built" log || true')
[ "$got" = "$sum
0
0" ] || fail "the source has: $got"
echo "source: sum $sum, nothing new, nothing to build"
