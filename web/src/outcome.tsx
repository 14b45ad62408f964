import { Detail, GateEntry, path, revisionOfSeen } from './api';
import { useData } from './hooks';
import { came, Came } from './came';
import { Brief, ObjectName, Pill, plural } from './parts';

const shown = 5; // changes whose way is followed

// Followed is what a person asked for, which the page follows until it is done.
export interface Followed {
  action: string;
  seen: string[]; // at a gate
  request?: string; // of a reconcile
}

// GateOutcome says what came of a decision, for each change that the person was shown.
export function GateOutcome({ of, entry }: { of: Followed; entry?: GateEntry }) {
  const gate = entry?.item.gate;
  return (
    <ul class="plain" role="status">
      {of.action === 'close' && <li>{gate?.open ? 'The gate is about to close.' : 'The gate is closed.'}</li>}
      {of.action !== 'close' && of.seen.slice(0, shown).map((s) => <Change key={s} seen={s} entry={entry} />)}
      {of.action !== 'close' && of.seen.length === 0 && gate && <li>{gate.open ? 'The gate is open. Nothing waits.' : `The gate is closed: ${gate.why ?? ''}`}</li>}
      {of.seen.length > shown && <li class="quiet">and {plural(of.seen.length - shown, 'more change')}</li>}
    </ul>
  );
}

function Change({ seen, entry }: { seen: string; entry?: GateEntry }) {
  const id = seen.slice(0, seen.indexOf('@'));
  const { data } = useData<Detail>('objects/' + path(id), (c) => c.id === id);
  const c = data && came(data.item, revisionOfSeen(seen), !!entry?.seen.includes(seen), entry?.item.gate);
  return (
    <li class="line">
      <ObjectName id={id} /> {c && <State of={c} />}
    </li>
  );
}

function State({ of: c }: { of: Came }) {
  return (
    <>
      <Pill state={c.state}>{c.word}</Pill> <Brief text={c.text} />
    </>
  );
}

// ObjectOutcome says what came of an action on an object.
export function ObjectOutcome({ of, data }: { of: Followed; data: Detail }) {
  const item = data.item;
  if (of.action === 'suspend' || of.action === 'resume') {
    return <p role="status">{item.state === 'suspended' ? 'It is suspended.' : 'It is reconciled again.'}</p>;
  }
  if (data.handled !== of.request) {
    return (
      <p role="status" class="quiet">
        Requested. Its controller has not taken it yet.
      </p>
    );
  }
  return (
    <p role="status" class="line">
      Reconciled: <Pill state={item.state} /> <Brief text={item.message} />
    </p>
  );
}
