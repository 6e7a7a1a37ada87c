// What a machine knows about itself, and what of it no other machine may have (CLN-1, CLN-3).

/**
 * Shell script that prints `name=value` lines. It prints the clock first, so that the other commands do not delay it.
 */
export const FACTS = `
echo clock=$(date +%s%3N)
echo machine-id=$(cat /etc/machine-id)
echo identity-record=$(tr -d - < /var/lib/sandbar/identity)
echo hostname=$(hostname)
echo etc-hostname=$(cat /etc/hostname)
echo boot-id=$(cat /proc/sys/kernel/random/boot_id)
echo ip=$(ip -4 -o address show eth0 | sed 's/.*inet \\([0-9.]*\\).*/\\1/')
echo mac=$(cat /sys/class/net/eth0/address)
echo urandom=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')
echo getrandom=$(python3 -SEc 'import os; print(os.getrandom(16).hex())')
echo ssh-keys=$(cat /etc/ssh/ssh_host_*_key 2>/dev/null | sha256sum | grep -v ^e3b0c44298fc)
echo random-seed=$(cat /var/lib/systemd/random-seed 2>/dev/null | sha256sum | grep -v ^e3b0c44298fc)`;

/** Names of the facts that must be different on every machine. */
export const UNIQUE = ['machine-id', 'hostname', 'boot-id', 'ip', 'mac', 'urandom', 'getrandom'];

/** Reads the output of {@link FACTS}: the values by their names. */
export function parseFacts(output: string): Map<string, string> {
  const lines = output.trim().split('\n');
  return new Map(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}
