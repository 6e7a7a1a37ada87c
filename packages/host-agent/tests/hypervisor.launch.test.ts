// Tests what is left of a VM whose launch fails, with a program in the place of QEMU.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { QemuHypervisor } from '../src/hypervisor/qemu.ts';
import { NoJail } from '../src/jail/no-jail.ts';

describe('a failed launch', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-launch-'));
  after(() => rmSync(dir, { recursive: true }));

  it("has ended the VM's process when it is reported, so that another VM can have the same disk (CTL-2)", async () => {
    const [qemuPath, pidPath, statePath] = [join(dir, 'qemu'), join(dir, 'pid'), join(dir, 'state')];
    // Opens the monitor and refuses every command except the first, as QEMU does if it cannot load a state.
    writeFileSync(
      qemuPath,
      `#!${process.execPath}
      require('node:fs').writeFileSync('${pidPath}', String(process.pid));
      require('node:net').createServer((socket) => {
        socket.write('{"QMP": {"version": {}, "capabilities": []}}\\n');
        let text = '';
        socket.on('data', (chunk) => {
          const lines = (text + chunk).split('\\n');
          text = lines.pop();
          for (const { execute, id } of lines.map((line) => JSON.parse(line))) {
            const answer = execute === 'qmp_capabilities' ? { return: {} } : { error: { class: 'x', desc: 'refused' } };
            socket.write(JSON.stringify({ ...answer, id }) + '\\n');
          }
        });
      }).listen('qmp.sock');`,
    );
    chmodSync(qemuPath, 0o700);
    writeFileSync(statePath, '');
    const [runDir, recordsDir] = [join(dir, 'run'), join(dir, 'records')];
    for (const path of [runDir, recordsDir]) mkdirSync(path);
    const guests = { connect: () => assert.fail('no session is opened') };
    const hypervisor = new QemuHypervisor({
      qemuPath,
      isolation: 'emulated',
      jail: new NoJail(dir),
      guests,
      runDir,
      recordsDir,
    });
    const launching = hypervisor.launch({
      vmId: '0123456789ab',
      vcpus: 1,
      memoryMb: 8,
      diskPath: join(dir, 'disk'),
      imagePath: join(dir, 'image'),
      layerPaths: [],
      runDir: join(runDir, 'vm'),
      nic: { kind: 'user', mac: '', subnet: '', gateway: '', nameServer: '' },
      start: { kind: 'restore', statePath, memoryFd: openSync(statePath, 'r'), templateKey: 'k' },
    });
    await assert.rejects(launching, /refused/);
    assert.ok(!existsSync(`/proc/${readFileSync(pidPath, 'utf8')}`), 'its process is still there');
  });
});
