// The API of the server, as internal/ui answers it.
import { base } from './base';

export type State = 'failed' | 'waiting' | 'progressing' | 'suspended' | 'ready';

export const states: State[] = ['failed', 'waiting', 'progressing', 'suspended', 'ready'];

export interface Waiter {
  id: string;
  revision: string;
  since?: string;
  risk?: string;
  change?: string;
  rule?: string;
  message?: string;
}

export interface Check {
  name: string;
  holds: boolean;
  message?: string;
  by?: string;
  soaks?: string;
  until?: string;
  promoted?: string;
  promotedAt?: string;
}

export interface FailedChange {
  revision: string;
  message: string;
  since?: string;
  resolvedAt?: string;
  objects?: string[];
}

export interface Reverted {
  from: string;
  to: string;
  gate: string;
  since: string;
  reason: string;
  by?: string;
}

export interface Rule {
  name?: string;
  outcome: 'pass' | 'deny' | 'approvals';
  message?: string;
  required?: number;
  users?: string[];
  groups?: string[];
  omitted?: number;
}

export interface Approval {
  name: string;
  user: string;
  at: string;
  revision?: string;
  counts: boolean;
  message?: string;
}

export interface Gate {
  open: boolean;
  until?: string;
  why?: string;
  count: number;
  required: number;
  approved: number;
  approvals?: Approval[];
  waiting?: Waiter[];
  rules?: Rule[];
  checks?: Check[];
  failures?: FailedChange[];
  waves?: Wave[];
  onFailure?: 'Hold' | 'Revert';
  soak?: string;
  revisions?: string[];
}

export interface Wave {
  source: string;
  revision: string;
  name?: string;
  complete: boolean;
  message?: string;
  until?: string;
}

export interface Item {
  id: string;
  kind: string;
  namespace: string;
  name: string;
  state: State;
  reason?: string;
  message?: string;
  since?: string;
  revision?: string;
  pending?: string;
  changed?: string;
  sources?: string[];
  dependsOn?: string[];
  gates?: string[];
  cluster?: string;
  appliedBy?: string;
  watches?: string[];
  selects?: { kind: string; namespace: string; labels?: Record<string, string> }[];
  provider?: string;
  objects?: number;
  subject?: string;
  author?: string;
  url?: string;
  image?: string;
  risk?: string;
  pullRequest?: string;
  reverted?: Reverted;
  gate?: Gate;
  past?: Past[];
  deleting?: string;
  finalizers?: string[];
}

// Past is a revision that was applied before, and whether it became healthy.
export interface Past {
  at: string;
  revision: string;
  state: State;
}

export interface Me {
  user: string;
  groups?: string[];
  version: string;
  cluster?: string;
  kubernetes?: string;
  kinds: string[];
  loading: string[] | null;
  problems: Record<string, string>;
  csrf: string;
  logout: boolean;
  reviews?: boolean;
}

// Methods are the ways to log in. A server for one user has none: its first address contains a token.
export interface Methods {
  oidc?: boolean;
  token?: boolean;
}

export type Counts = Partial<Record<State, number>>;

export interface Group {
  name: string;
  counts: Counts;
}

export interface Problem {
  item: Item;
  count: number;
  dependents?: string[];
}

export interface Overview {
  total: number;
  counts: Counts;
  byNamespace: Group[];
  byKind: Group[];
  bySource: Group[];
  problems: Problem[];
  recent: Item[] | null;
  atGates: number;
}

export interface Page {
  items: Item[];
  total: number;
  next?: string;
}

export interface Edge {
  from: string;
  to: string;
  relation: 'source' | 'gate' | 'applied' | 'dependsOn' | 'notifies';
}

export interface Graph {
  nodes: Item[];
  edges: Edge[];
  missing?: string[];
  omitted: number;
}

export interface Step {
  name: string;
  object?: string;
  state: 'done' | 'current' | 'blocked' | 'ahead' | 'skipped';
  text: string;
  url?: string;
  from?: string;
  at?: string;
  until?: string;
  do?: string;
}

export interface Chain {
  target: Item;
  live: boolean;
  steps: Step[];
}

export interface Answer {
  chains: Chain[];
  omitted: number;
  note?: string;
}

export interface Pending {
  revision?: string;
  since?: string;
  created?: number;
  configured?: number;
  deleted?: number;
  changes?: string[];
  diff?: string;
  images?: string[];
  risk?: string;
  change?: string;
  message?: string;
}

export interface GateEntry {
  item: Item;
  seen: string[];
  waiting: (Waiter & { why?: string; pending?: Pending; error?: string })[];
  omitted: number;
  mayNot?: string;
}

export interface Version {
  at: string;
  name: string;
  status: string;
  by?: string;
  text?: string;
  version?: number;
  subject?: string;
  author?: string;
  commit?: string;
  compare?: string;
}

export interface ReleaseDiff {
  from: number;
  to: number;
  changes: { object: string; action: string; diff: string }[];
  omitted: number;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Event {
  at: string;
  type: string;
  reason: string;
  message: string;
  count: number;
}

export interface Detail {
  item: Item;
  conditions: Condition[] | null;
  events: Event[];
  eventError?: string;
  history: Version[];
  pending?: Pending;
  why?: string;
  admitted?: { revision: string; readyAt?: string; failedAt?: string; message?: string };
  gate?: GateEntry;
  diff?: string;
  suspension?: string;
  actions: string[];
  handled?: string;
  rollback?: Rollback;
  yaml: string;
  values?: string;
}

// Rollback is what an object can go back to, or why it cannot.
export interface Rollback {
  revision?: string;
  release?: number;
  from?: string;
  gate?: string;
  why?: string;
}

export interface WorkloadImage {
  workload: string;
  container: string;
  image: string;
  runs: string;
  selected?: string;
  isNewer: boolean;
  policy?: string;
  release?: string;
}

export interface ImagePage {
  images: WorkloadImage[];
  total: number;
  newer: number;
  next?: string;
  automations: string[];
  notes: string[];
}

export interface Workload {
  id: string;
  kind: string;
  namespace: string;
  name: string;
  application: string;
  state: State;
  message?: string;
  ready: number;
  desired: number;
  images?: string[];
  schedule?: string;
  lastRun?: string;
  pods: number;
  restarts: number;
  restartedAt?: string;
  cpu?: number; // 1/1000 of a core
  memory?: number; // bytes
  used?: { cpu: number[]; memory: number[] }; // by minute, -1 if it is not known
  revision?: string;
  subject?: string;
  author?: string;
}

export interface WorkloadPage {
  workloads: Workload[];
  total: number;
  next?: string;
  usage: boolean;
  notes: string[];
}

export interface Cluster {
  name: string;
  objects: number;
  counts: Counts;
  revisions: string[];
  different: number;
  problem?: Item;
  unreachable?: Item;
}

export interface Clusters {
  clusters: Cluster[];
}

export interface Code {
  code: string;
  reason: string;
  text: string;
  needsNoAction?: boolean;
}

export interface Codes {
  codes: Code[];
}

// Release is the body of a request for a release.
export interface Release {
  automation: string;
  workloads: string[];
  container?: string;
  images: string[];
  author?: string;
  reason?: string;
  dryRun: boolean;
}

export interface Node {
  kind: string;
  group?: string;
  namespace?: string;
  name: string;
  status: string;
  message?: string;
  images?: string[];
  containers?: string[];
  below?: Node[];
}

// Resource is an object of any kind, for the panel of a tree.
export interface Resource {
  conditions: Condition[];
  events: Event[];
  eventError?: string;
  owners: string[];
  appliedBy?: string;
  yaml: string;
  managed?: string;
  foreign: Foreign[];
  declared: boolean;
}

// Foreign is a field that another client than the controllers set, or removed.
export interface Foreign {
  path: string;
  value?: string; // none if the cluster does not have the field
  git?: string; // what git declares; none if nothing or not known
  manager?: string;
  at?: string;
}

// Drift is what differs between git and the cluster, of all that an object applied.
export interface Drift {
  objects: { group?: string; kind: string; namespace?: string; name: string; missing?: boolean; hidden?: string; fields: Foreign[]; file?: string; page?: string }[];
  equal: number;
  omitted: number;
  git?: string; // the revision whose values those of git are
  gitError?: string; // why they are not known
}

// Processes are the controllers with what they do now.
export interface Processes {
  deployments: { name: string; ready: number; desired: number }[];
  leaders: { lease: string; holder: string; renewed: string; lost: boolean }[];
  queue?: { waiting: number; working: number; pods: number };
  lastSync?: string;
  hidden: string[];
}

// Inputs are the input sets of a ResourceSet, and what each renders.
export interface Inputs {
  inputs: { from: string; id?: string; values: string; objects: string[]; count: number }[];
  omitted: number;
  error?: string;
}

// Groups are objects by namespace, source or label.
export interface Groups {
  groups: Group[];
  omitted: number;
  labels: string[];
}

export interface Tree {
  top: Node;
  total: number;
  omitted: number;
}

export interface ChangePage {
  changes: ChangeSet[];
  total: number;
  next?: string;
}

export interface ChangeSet {
  key: string;
  revision: string;
  subject?: string;
  author?: string;
  at?: string;
  pending?: Item[];
  live?: Item[];
  sources?: Item[];
  failed?: Item[];
  failedCount: number;
  pendingCount: number;
  liveCount: number;
  sourceCount: number;
}

export interface Calendar {
  next: { at: string; entry?: string; opened: boolean; why: string }[];
  more: boolean;
  past: Version[];
}

export interface Period {
  from: string;
  to: string;
  opened: boolean;
  known: boolean;
  why?: string;
  by?: string;
}

export interface GatesCalendar {
  from: string;
  now: string;
  to: string;
  gates: { gate: string; periods: Period[]; error?: string; more: boolean }[];
  omitted: number;
}

// Order is the body of an action.
export interface Order {
  reason?: string;
  for?: string;
  revision?: string;
  groups?: string[];
  seen?: string[];
}

// Done is the answer to an action.
export interface Done {
  done: string;
  approvals?: number;
  changes?: number;
  left?: number;
  made?: string;
  request?: string;
}

// revisionOfSeen returns the revision in what identifies a change that waits: ID@revision#change.
export function revisionOfSeen(seen: string): string {
  return seen.slice(seen.indexOf('@') + 1).split('#')[0] ?? '';
}

// Failure is an answer that is an error, with its HTTP status.
export class Failure extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

async function answer<T>(response: Response): Promise<T> {
  const text = await response.text();
  let body: { error?: string } = {};
  try {
    body = JSON.parse(text);
  } catch {
    throw new Failure(`The server sent an unreadable answer (${response.status}).`, response.status);
  }
  if (!response.ok) {
    throw new Failure(body.error ?? `The server answered ${response.status}.`, response.status);
  }
  return body as T;
}

// request calls the server. A server that cannot be reached is a Failure with status 0.
async function request<T>(address: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(address, init);
  } catch (e) {
    if (init.signal?.aborted) {
      throw e;
    }
    throw new Failure('The server of the UI cannot be reached. It may have ended: start it again.', 0);
  }
  return answer<T>(response);
}

// csrf is the secret of the session, which every write contains.
let csrf = '';

// get reads from the API.
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const data = await request<T>(base.api + '/api/v1/' + path, { signal });
  if (path === 'me') {
    csrf = (data as Me).csrf;
  }
  return data;
}

// hubMethods are the ways to log in at the hub and with that at a cluster.
export function hubMethods(cluster: string): Promise<Methods> {
  return request('/api/v1/login?cluster=' + encodeURIComponent(cluster), {});
}

function post(address: string, body: unknown): Promise<unknown> {
  return request(address, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Sluice-Csrf': csrf },
    body: JSON.stringify(body),
  });
}

// download saves a file of the API.
export async function download(address: string): Promise<void> {
  const response = await fetch(base.api + '/api/v1/' + address);
  if (!response.ok) {
    await answer(response);
  }
  const name = /filename="?([^"]+)"?/.exec(response.headers.get('Content-Disposition') ?? '')?.[1] ?? 'artifact';
  save(name, await response.blob());
}

// save lets the browser store a file.
export function save(name: string, content: Blob) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// act asks for an action on an object.
export async function act(id: string, action: string, order: Order): Promise<Done> {
  return (await post(`${base.api}/api/v1/objects/${path(id)}/${action}`, order)) as Done;
}

// actOnWorkload restarts a rollout, runs a CronJob or deletes a pod.
export async function actOnWorkload(id: string, action: string, reason: string): Promise<Done> {
  return (await post(`${base.api}/api/v1/workloads/${path(id)}/${action}`, { reason })) as Done;
}

// release asks for a release, and returns the ID of the ImageUpdateJob.
export async function release(order: Release): Promise<string> {
  const job = (await post(base.api + '/api/v1/releases', order)) as { id: string };
  return job.id;
}

// logIn starts a session with the token of a ServiceAccount.
export async function logIn(token: string): Promise<void> {
  await post(base.api + '/login/token', { token });
}

// logOut ends the session.
export async function logOut(): Promise<void> {
  await post(base.api + '/logout', {});
}

// path returns an ID as a part of a URL.
export function path(id: string): string {
  return id.split('/').map(encodeURIComponent).join('/');
}

export interface Change {
  id: string;
  item: Item | null;
}

// reconnectDelay is in milliseconds.
const reconnectDelay = 2000;

// Live is the stream of changes. It connects again by itself; listeners are then called without changes, to read anew.
export class Live {
  private listeners = new Set<(changes: Change[] | null) => void>();
  private states = new Set<(connected: boolean) => void>();
  private connected = false;

  constructor() {
    this.connect();
  }

  private connect() {
    const source = new EventSource(base.api + '/api/v1/stream');
    source.addEventListener('hello', () => {
      this.set(true);
      this.tell(null);
    });
    source.addEventListener('changes', (e) => this.tell(JSON.parse((e as MessageEvent<string>).data) as Change[]));
    source.addEventListener('error', () => {
      this.set(false);
      if (source.readyState === EventSource.CLOSED) {
        // The server refused, for example until the person logs in again. The browser does not retry that.
        window.setTimeout(() => this.connect(), reconnectDelay);
      }
    });
  }

  private set(connected: boolean) {
    this.connected = connected;
    this.states.forEach((f) => f(connected));
  }

  private tell(changes: Change[] | null) {
    this.listeners.forEach((f) => f(changes));
  }

  onChange(f: (changes: Change[] | null) => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  onState(f: (connected: boolean) => void): () => void {
    this.states.add(f);
    f(this.connected);
    return () => this.states.delete(f);
  }
}
