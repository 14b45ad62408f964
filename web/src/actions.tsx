import { Check, CirclePause, CirclePlay, DoorClosed, DoorOpen, LucideIcon, RefreshCw, ShieldAlert } from 'lucide-preact';
import { useEffect, useState } from 'preact/hooks';
import { act, Detail, Done, Failure, GateEntry, Order, revisionOfSeen } from './api';
import { Icon } from './icons';
import { Followed, GateOutcome, ObjectOutcome } from './outcome';
import { Dialog, Problem } from './parts';

interface Action {
  icon: LucideIcon;
  label: string;
  title: string;
  confirm: boolean; // asks for details first
  reason: 'required' | 'optional' | 'none';
  window?: boolean;
  revision?: boolean;
}

const actions: Record<string, Action> = {
  reconcile: { icon: RefreshCw, label: 'Reconcile', title: 'Reconcile now', confirm: false, reason: 'none' },
  suspend: { icon: CirclePause, label: 'Suspend', title: 'Suspend', confirm: true, reason: 'required' },
  resume: { icon: CirclePlay, label: 'Resume', title: 'Resume', confirm: false, reason: 'none' },
  approve: { icon: Check, label: 'Approve', title: 'Approve in your name', confirm: true, reason: 'optional', revision: true },
  open: { icon: DoorOpen, label: 'Open', title: 'Open the gate', confirm: true, reason: 'optional', window: true, revision: true },
  close: { icon: DoorClosed, label: 'Close', title: 'Close the gate', confirm: true, reason: 'optional', window: true },
  override: {
    icon: ShieldAlert,
    label: 'Override',
    title: 'Open regardless of schedule, approvals and checks',
    confirm: true,
    reason: 'required',
    window: true,
  },
};

// ActionBar is the buttons for what can be done with an object.
export function ActionBar(props: {
  id: string;
  actions: string[];
  seen: string[];
  omitted?: number;
  mayNotApprove?: string;
  entry?: GateEntry;
  detail?: Detail;
  onDone: () => void;
}) {
  const [asked, setAsked] = useState<string>();
  // What the person saw when the dialog opened. Later changes must not be decided on unseen.
  const [seen, setSeen] = useState<string[]>([]);
  const [done, setDone] = useState('');
  const [followed, setFollowed] = useState<Followed>();
  const [error, setError] = useState<Error>();
  const ask = (name: string) => {
    setSeen(props.seen);
    setError(undefined);
    setAsked(name);
  };
  useEffect(() => {
    const wanted = new URLSearchParams(location.search).get('ask') ?? '';
    if (props.actions.includes(wanted) && actions[wanted]?.confirm && !(wanted === 'approve' && props.mayNotApprove)) {
      ask(wanted);
    }
  }, []);
  const run = async (name: string, order: Order) => {
    try {
      const answer = await act(props.id, name, { ...order, seen });
      setError(undefined);
      setDone(approved(answer));
      setFollowed({ action: name, seen, request: answer.request });
      setAsked(undefined);
    } catch (e) {
      setError(e as Error);
      if (e instanceof Failure && e.status === 409) {
        setAsked(undefined);
      }
    }
    props.onDone();
  };
  const main = !props.actions.includes('approve') ? '' : props.mayNotApprove ? (props.seen.length ? 'open' : '') : 'approve';
  return (
    <div>
      <div class="buttons">
        {props.actions.map((name) => {
          const a = actions[name];
          return (
            a && (
              <button
                class={name === main ? 'primary' : name === 'override' ? 'risky' : ''}
                disabled={name === 'approve' && !!props.mayNotApprove}
                title={name === 'approve' ? props.mayNotApprove : undefined}
                onClick={() => (a.confirm ? ask(name) : void run(name, {}))}>
                <Icon of={a.icon} size={14} /> {a.label}
              </button>
            )
          );
        })}
      </div>
      {props.mayNotApprove && <p class="quiet">Approve is off: {props.mayNotApprove}.</p>}
      {done && <p class="quiet">{done}</p>}
      {followed && props.entry && <GateOutcome of={followed} entry={props.entry} />}
      {followed && props.detail && <ObjectOutcome of={followed} data={props.detail} />}
      {!asked && <Problem error={error} />}
      {asked && <Ask name={asked} error={error} seen={seen} omitted={props.omitted ?? 0} onClose={() => setAsked(undefined)} onRun={(o) => void run(asked, o)} />}
    </div>
  );
}

// approved says what an approval named.
function approved(d: Done): string {
  if (!d.changes) {
    return '';
  }
  const by = (d.approvals ?? 1) > 1 ? ` by ${d.approvals} GateApprovals` : '';
  return `The approval names ${plural(d.changes, 'change')}${by}.${d.left ? ` ${plural(d.left, 'change')} that it does not name still wait.` : ''}`;
}

// About says what a decision at a gate is about.
function About({ name, seen, omitted }: { name: string; seen: string[]; omitted: number }) {
  if (!['approve', 'open', 'override'].includes(name)) {
    return null;
  }
  return (
    <p>
      {seen.length ? `About ${plural(seen.length, 'change')} that you were shown.` : 'No change waits that you were shown.'}{' '}
      {omitted > 0 && (
        <strong>
          {plural(omitted, 'more')} {omitted === 1 ? 'waits' : 'wait'}:{' '}
          {name === 'approve' ? 'an approval does not name what is not shown.' : 'an open gate lets them pass, too.'}
        </strong>
      )}
    </p>
  );
}

function plural(n: number, word: string): string {
  return `${n} ${word}${n === 1 || word === 'more' ? '' : 's'}`;
}

interface AskProps {
  name: string;
  error?: Error;
  seen: string[];
  omitted: number;
  onClose: () => void;
  onRun: (o: Order) => void;
}

function Ask(props: AskProps) {
  const a = actions[props.name];
  if (!a) {
    return null;
  }
  const revisions = [...new Set(props.seen.map(revisionOfSeen))];
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    const data = new FormData(e.currentTarget as HTMLFormElement);
    const order: Order = {};
    for (const key of ['reason', 'for', 'revision'] as const) {
      const value = String(data.get(key) ?? '').trim();
      if (value) {
        order[key] = value;
      }
    }
    props.onRun(order);
  };
  return (
    <Dialog title={a.title} onClose={props.onClose}>
      <form onSubmit={submit} class="ask">
        <About name={props.name} seen={props.seen} omitted={props.omitted} />
        {a.reason !== 'none' && (
          <label>
            Reason {a.reason === 'optional' && '(optional)'}
            <input name="reason" required={a.reason === 'required'} maxLength={500} autoFocus />
          </label>
        )}
        {a.window && (
          <label>
            For how long (optional, such as 30m or 2h)
            <input name="for" pattern="([0-9]+(\.[0-9]+)?(ms|s|m|h))+" />
          </label>
        )}
        {a.revision && (
          <label>
            Only this revision (optional)
            <input name="revision" defaultValue={props.name === 'approve' && revisions.length === 1 ? revisions[0] : ''} />
          </label>
        )}
        <Problem error={props.error} />
        <div class="buttons">
          <button type="submit" class={props.name === 'override' ? 'danger' : 'primary'}>
            {a.label}
          </button>
          <button type="button" onClick={props.onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}
