import {
  Archive, Bell, BookOpen, Box, Boxes, CalendarClock, CircleCheck, CirclePause, CircleX, Clock, Container, Cuboid, Database,
  FileCode, FileText, GitBranch, Globe, HardDrive, KeyRound, Layers, ListChecks, LoaderCircle, LucideIcon, Network, Package,
  RefreshCw, Rocket, Send, Server, Shield, ShieldCheck, ShipWheel, Split, Tag, UserRound, Webhook,
} from 'lucide-preact';
import { State } from './api';

// One icon a kind of Kubernetes; kinds that are not listed share one.
const kinds: Record<string, LucideIcon> = {
  Alert: Bell,
  ArtifactGenerator: Split,
  Bucket: Archive,
  ConfigMap: FileText,
  CronJob: CalendarClock,
  DaemonSet: Server,
  Deployment: Rocket,
  EndpointSlice: Network,
  ExternalArtifact: Archive,
  Gate: Shield,
  GateApproval: ShieldCheck,
  GitRepository: GitBranch,
  HelmChart: FileCode,
  HelmRelease: ShipWheel,
  HelmRepository: BookOpen,
  ImagePolicy: Tag,
  ImageRepository: Package,
  ImageUpdateAutomation: RefreshCw,
  ImageUpdateJob: RefreshCw,
  Ingress: Globe,
  Job: ListChecks,
  Kustomization: Boxes,
  Namespace: Cuboid,
  OCIRepository: Container,
  PersistentVolumeClaim: HardDrive,
  Pod: Box,
  Provider: Send,
  Receiver: Webhook,
  ReplicaSet: Layers,
  Secret: KeyRound,
  Service: Network,
  ServiceAccount: UserRound,
  StatefulSet: Database,
};

const lines = 1.75; // stroke width of all icons

// KindIcon is the icon of a kind. Its name stands beside it, so it is not read aloud.
export function KindIcon({ kind, size = 16 }: { kind: string; size?: number }) {
  const Icon = kinds[kind] ?? Cuboid;
  return <Icon class="icon" size={size} strokeWidth={lines} aria-hidden="true" />;
}

const states: Record<State, LucideIcon> = {
  failed: CircleX,
  waiting: Clock,
  progressing: LoaderCircle,
  suspended: CirclePause,
  ready: CircleCheck,
};

// StateIcon is the icon of a state, in its colour.
export function StateIcon({ state, size = 14 }: { state: State; size?: number }) {
  const Icon = states[state];
  return <Icon class={`icon ink-${state}`} size={size} strokeWidth={2} aria-hidden="true" />;
}

// Icon draws an icon of Lucide as all others are drawn.
export function Icon({ of: Of, size = 16 }: { of: LucideIcon; size?: number }) {
  return <Of class="icon" size={size} strokeWidth={lines} aria-hidden="true" />;
}
