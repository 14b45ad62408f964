import { useEffect, useState } from 'preact/hooks';
import { get, hubMethods, logIn, Methods } from '../api';
import { base, inside } from '../base';
import { useTitle } from '../hooks';
import { Problem } from '../parts';

// Login is shown to who is not logged in. It offers what the server offers; without that it says how to get in.
export function Login({ error }: { error?: Error }) {
  useTitle('Log in');
  const [methods, setMethods] = useState<Methods>();
  const [hub, setHub] = useState<Methods>({});
  const [failed, setFailed] = useState<Error>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    get<Methods>('login').then(setMethods, () => setMethods({}));
    if (base.cluster) {
      hubMethods(base.cluster).then(setHub, () => {}); // the cluster has its own
    }
  }, []);
  if (!methods) {
    return <p class="quiet">Loading…</p>;
  }
  if (!methods.oidc && !methods.token && !hub.oidc) {
    return <Problem error={error} />;
  }
  const here = inside(location.pathname, base.pages) + location.search;
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const form = e.currentTarget as HTMLFormElement;
    setBusy(true);
    try {
      await logIn(String(new FormData(form).get('token') ?? '').trim());
      location.reload();
    } catch (e) {
      setFailed(e as Error);
      setBusy(false);
    }
  };
  return (
    <div class="login card pad">
      <h1>Log in</h1>
      <p>You see and do what your rights in the cluster allow.</p>
      {hub.oidc && (
        <>
          <p>
            <a class="button primary" href={'/login/oidc?next=' + encodeURIComponent(location.pathname + location.search)}>
              Log in at the hub
            </a>
          </p>
          {error && <p class="quiet">This cluster says: {error.message}</p>}
        </>
      )}
      {methods.oidc && (
        <p>
          <a class={hub.oidc ? 'button' : 'button primary'} href={base.api + '/login/oidc?next=' + encodeURIComponent(here)}>
            Log in with your organization
          </a>
        </p>
      )}
      {methods.token && (
        <form onSubmit={(e) => void submit(e)} class="ask">
          <label>
            Token of a ServiceAccount
            <input name="token" type="password" autoComplete="off" required maxLength={2500} />
          </label>
          <p class="quiet">
            Create one with <code>kubectl create token NAME --namespace NAMESPACE</code>
          </p>
          <Problem error={failed} />
          <div class="buttons">
            <button type="submit" disabled={busy}>
              Log in with the token
            </button>
          </div>
        </form>
      )}
    </div>
  );
}
