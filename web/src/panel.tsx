import { ScrollText, X } from 'lucide-preact';
import { Node } from './api';
import { Icon, KindIcon } from './icons';
import { logsPath } from './pages/logs';
import { Pill } from './parts';
import { Link } from './router';
import { flat, idOf, stateOf } from './tree';
import { WorkloadAction, workloadActions } from './workload';

// Panel is one object of a tree: its health in words, images, what it made, and what can be done with it.
export function Panel({ node, onClose }: { node: Node; onClose: () => void }) {
  const id = idOf(node);
  const hasLogs = flat([node]).some(([n]) => n.kind === 'Pod');
  return (
    <aside class="panel" aria-label={id} onKeyDown={(e) => e.key === 'Escape' && onClose()}>
      <header>
        <span class="tile-icon">
          <KindIcon kind={node.kind} />
        </span>
        <div>
          <strong>{node.name}</strong>
          <div class="quiet">
            {node.kind} {node.namespace && `· ${node.namespace}`}
          </div>
        </div>
        <button class="ghost" aria-label="Close" onClick={onClose} ref={(b) => b?.focus()}>
          <Icon of={X} />
        </button>
      </header>
      {(hasLogs || workloadActions(node.kind).length > 0) && (
        <div class="pad buttons">
          {hasLogs && (
            <Link to={logsPath(id)} class="button">
              <Icon of={ScrollText} size={14} /> Logs
            </Link>
          )}
          {workloadActions(node.kind).map((a) => (
            <WorkloadAction id={id} action={a} />
          ))}
        </div>
      )}
      <dl class="facts">
        <dt>Health</dt>
        <dd>
          <Pill state={stateOf(node.status)}>{node.status}</Pill> {node.message}
        </dd>
        {!!node.images?.length && (
          <>
            <dt>Images</dt>
            <dd>
              {node.images.map((i) => (
                <div>
                  <code>{i}</code>
                </div>
              ))}
            </dd>
          </>
        )}
        {!!node.below?.length && (
          <>
            <dt>Made</dt>
            <dd>
              {node.below.map((n) => (
                <div>{idOf(n)}</div>
              ))}
            </dd>
          </>
        )}
      </dl>
    </aside>
  );
}
