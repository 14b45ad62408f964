import { CircleDot, Download, GitPullRequest, Hammer, HeartPulse, Layers, LucideIcon, Package, Shield, Webhook } from 'lucide-preact';
import { Step } from './api';
import { useNow } from './hooks';
import { Icon } from './icons';
import { duration } from './parts';

const icons: [RegExp, LucideIcon][] = [
  [/pull request/, GitPullRequest],
  [/push/, CircleDot],
  [/webhook/, Webhook],
  [/source|fetch|artifact/, Download],
  [/chart|image/, Package],
  [/build/, Hammer],
  [/gate/, Shield],
  [/apply|release|install|upgrade/, Layers],
  [/health/, HeartPulse],
];

// StepIcon is the icon of a step of a change.
export function StepIcon({ name, size = 14 }: { name: string; size?: number }) {
  return <Icon of={icons.find(([word]) => word.test(name))?.[1] ?? CircleDot} size={size} />;
}

// isHeldByGate reports whether a step is blocked because a gate holds the change, which is no failure.
export function isHeldByGate(s: Step): boolean {
  return s.state === 'blocked' && /gate/.test(s.name + s.text);
}

// Pipeline is the way of a change in one line, each step with what it took. The step that blocks is filled.
export function Pipeline({ steps }: { steps: Step[] }) {
  const now = useNow();
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="The way of the current change">
      <ol class="pipeline">
        {steps.map((s) => (
          <li class={`${s.state} ${isHeldByGate(s) ? 'at-gate' : ''}`} title={s.text}>
            <span class="mark">
              <StepIcon name={s.name} />
            </span>
            <span>
              <strong>{s.name}</strong>
              <small>{fact(s, now)}</small>
            </span>
            <span class="visually-hidden">{s.state}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

// fact returns what a step took or lasts, and what it says in short.
function fact(s: Step, now: number): string {
  if (s.state === 'skipped') {
    return 'not used';
  }
  if (s.state === 'ahead') {
    return 'later';
  }
  const end = s.state === 'done' ? s.at && Date.parse(s.at) : now;
  const took = s.from && end ? end - Date.parse(s.from) : 0;
  const time = took > 0 ? `${s.state === 'done' ? '+' : ''}${duration(took)} · ` : '';
  return time + s.text.replace(/\S*@?sha\d+:([0-9a-f]{8})[0-9a-f]*/g, '$1').replace(/\s*<[^>]*@[^>]*>/, '');
}
