# The machine around one command, in bash and util-linux. machine.mjs runs this
# text four times over, each time with less:
#
#   first ROOT FSTAB       process 1: it mounts what is the instance's own, gives up
#                          the host's root and says "ready". Then it passes on the
#                          signals that it reads; the end of its standard input is
#                          the end of all in its namespaces, so that nothing
#                          outlives a provider that was killed.
#   enter IN OUT ERR PID…  in the pid namespace: opens the command's streams, which are
#                          the provider's, and enters the other namespaces
#   command LIMITS…        in a user namespace of its own: no way to a further one
#   last LIMITS…           without capabilities: becomes the command
#
# The command's words come on descriptor 3, each with a NUL behind it, because they
# can be any bytes: its directory, its environment, its program and arguments. Until
# "go" and its number, standard error is the provider's; 4 is that of the command.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
case $1 in
first)
  set -e
  mount --all --fstab "$3"
  cd "$2"
  hostname machine
  echo 0x9 >sys/class/net/lo/flags # up; loopback is the whole network
  umount sys
  pivot_root . run
  umount --lazy /run
  cd /
  echo ready
  exec >&- 2>&-
  # And reaps meanwhile whatever lost its parent.
  while read -r signal process; do kill -s "$signal" "$process" || :; done
  ;;
enter)
  exec <"$2" >"$3" 4>"$4"
  exec nsenter --mount --net --ipc --uts --target "$5" "${@:6}"
  ;;
command)
  set -e
  echo 0 >/proc/sys/user/max_user_namespaces # in which it could have capabilities again
  exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all \
    bash --norc -c "$BASH_EXECUTION_STRING" "$0" last "${@:2}"
  ;;
last)
  mapfile -d '' -t words <&3
  cd "${words[0]}" || exit
  ulimit -c 0
  ulimit -u "$2" 2>/dev/null # one of the host that is lower stays
  ulimit -f "$3" 2>/dev/null
  umask 022
  echo "go $$" >&2
  # Under this name, which nobody in the machine knows, env says that there is no
  # such program; and bash, that there are too many words.
  exec -a "$0" env -i -- "${words[@]:1}" 2>&4 3<&- 4>&-
  ;;
esac
