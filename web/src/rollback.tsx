import { Undo2 } from 'lucide-preact';
import { useState } from 'preact/hooks';
import { act, Detail, Version } from './api';
import { Icon } from './icons';
import { Dialog, ObjectLink, Problem, Revision, shortRevision } from './parts';
import { offers } from './offers';

// GoBackNote says what the object can go back to, or why it cannot.
export function GoBackNote({ data }: { data: Detail }) {
  const r = data.rollback;
  if (!r) {
    return null;
  }
  return (
    <p class="quiet pad">
      {r.why ? (
        <>Going back is off: {r.why}.</>
      ) : (
        <>
          It can go back to <Revision of={r.revision ?? ''} />, which was healthy before, by <ObjectLink id={r.gate ?? ''} />. What is older is no
          longer stored.
        </>
      )}
    </p>
  );
}

// GoBack is the button of a revision of the history that makes the object go back to it.
export function GoBack({ data, to, onDone }: { data: Detail; to: Version; onDone: () => void }) {
  const [asked, setAsked] = useState<string>(); // what the object had when the dialog opened
  const [error, setError] = useState<Error>();
  const offer = offers(data, to);
  if (!offer) {
    return null;
  }
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const reason = String(new FormData(e.currentTarget as HTMLFormElement).get('reason') ?? '').trim();
    try {
      await act(data.item.id, 'rollback', { reason, revision: asked });
      setAsked(undefined);
      setError(undefined);
      onDone();
    } catch (e) {
      setError(e as Error);
    }
  };
  return (
    <>
      <button class="small" disabled={!!offer.why} title={offer.why} onClick={() => setAsked(data.rollback?.from)}>
        <Icon of={Undo2} size={14} /> Go back to this
      </button>
      {asked && (
        <Dialog title={`Go back to ${shortRevision(to.name)}`} onClose={() => setAsked(undefined)}>
          <form onSubmit={(e) => void submit(e)} class="ask">
            <p>
              <ObjectLink id={data.rollback?.gate ?? ''} /> refuses <Revision of={asked} /> for this object until something newer comes, or until it is
              allowed again by its name. Git is not changed.
            </p>
            <label>
              Reason
              <input name="reason" required maxLength={500} autoFocus />
            </label>
            <Problem error={error} />
            <div class="buttons">
              <button type="submit" class="danger">
                Go back
              </button>
              <button type="button" onClick={() => setAsked(undefined)}>
                Cancel
              </button>
            </div>
          </form>
        </Dialog>
      )}
    </>
  );
}
