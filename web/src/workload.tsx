import { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { actOnWorkload } from './api';
import { Dialog, Problem } from './parts';

const words: Record<string, { label: string; title: (id: string) => string; does: string; said: (made?: string) => string }> = {
  restart: {
    label: 'Restart',
    title: (id) => `Restart ${id}`,
    does: 'Its pods are created again, a few at a time, as kubectl rollout restart does. Git does not change.',
    said: () => 'The rollout was restarted.',
  },
  run: {
    label: 'Run now',
    title: (id) => `Run ${id} now`,
    does: 'A Job is created from its template, as kubectl create job --from does. Its schedule does not change.',
    said: (made) => `Created ${made}.`,
  },
  delete: {
    label: 'Delete',
    title: (id) => `Delete ${id}`,
    does: 'The pod ends. If a workload owns it, another one takes its place.',
    said: () => 'The deletion was requested.',
  },
};

// workloadActions returns what can be done with objects of a kind. Whether the person may do it, the API server decides.
export function workloadActions(kind: string): string[] {
  const actions: Record<string, string[]> = { Deployment: ['restart'], StatefulSet: ['restart'], DaemonSet: ['restart'], CronJob: ['run'], Pod: ['delete'] };
  return actions[kind] ?? [];
}

// WorkloadAction is a button that asks, acts with the rights of the person, and says what came of it.
export function WorkloadAction({ id, action, icon, onDone }: { id: string; action: string; icon?: ComponentChildren; onDone?: () => void }) {
  const [asks, setAsks] = useState(false);
  const [said, setSaid] = useState('');
  const [error, setError] = useState<Error>();
  const w = words[action];
  if (!w) {
    return null;
  }
  const run = async (e: SubmitEvent) => {
    e.preventDefault();
    const reason = String(new FormData(e.currentTarget as HTMLFormElement).get('reason') ?? '').trim();
    try {
      const done = await actOnWorkload(id, action, reason);
      setError(undefined);
      setSaid(w.said(done.made));
      onDone?.();
    } catch (failed) {
      setError(failed as Error);
    }
  };
  const close = () => {
    setAsks(false);
    setSaid('');
    setError(undefined);
  };
  return (
    <>
      <button class={icon ? 'ghost' : ''} aria-label={icon ? w.title(id) : undefined} title={w.label} onClick={() => setAsks(true)}>
        {icon ?? w.label + '…'}
      </button>
      {asks && (
        <Dialog title={w.title(id)} onClose={close}>
          {said ? (
            <>
              <p role="status">{said}</p>
              <div class="buttons">
                <button autoFocus onClick={close}>
                  Close
                </button>
              </div>
            </>
          ) : (
            <form class="ask" onSubmit={(e) => void run(e)}>
              <p>{w.does} It is done in your name.</p>
              <label>
                Reason (optional, for the audit log)
                <input name="reason" maxLength={500} autoFocus />
              </label>
              <Problem error={error} />
              <div class="buttons">
                <button type="submit" class={action === 'delete' ? 'danger' : 'primary'}>
                  {w.label}
                </button>
                <button type="button" onClick={close}>
                  Cancel
                </button>
              </div>
            </form>
          )}
        </Dialog>
      )}
    </>
  );
}
