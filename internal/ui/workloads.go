package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Actions on workloads and pods.
const (
	actRestart = "restart"
	actRun     = "run"
	actDelete  = "delete"
)

const (
	restartedAt = "kubectl.kubernetes.io/restartedAt" // annotation of a template, as kubectl rollout restart sets it
	instantiate = "cronjob.kubernetes.io/instantiate" // annotation of a Job that a person made from a CronJob

	maxCronName = 40 // bytes of the name of a CronJob in those of its Jobs
)

// workloadPage is a part of the workloads that match a query.
type workloadPage struct {
	Workloads []workloadRow `json:"workloads"`
	Total     int           `json:"total"`
	Next      string        `json:"next,omitempty"`
	Usage     bool          `json:"usage"` // whether metrics.k8s.io says what pods use
	Notes     []string      `json:"notes"` // what is not included, and why
}

// workloadRow is a workload with what its application applied last.
type workloadRow struct {
	*state.Workload
	Revision string `json:"revision,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Author   string `json:"author,omitempty"`
	Used     *usage `json:"used,omitempty"` // in the last minutes
}

// workloads lists the workloads that objects of Sluice applied, the worst first, with the rights of the user.
// Parameters: kind, namespace, state, q (words), limit and after.
func (s *Server) workloads(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := r.URL.Query()
	start, limit, err := pageOf(q)
	if err != nil {
		return nil, err
	}
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	release, err := s.heavy.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer release()
	found, notes, err := state.Workloads(ctx, u.Client, s.Model.List(may), q.Get("namespace"))
	if err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(q.Get("q")))
	found = slices.DeleteFunc(found, func(w *state.Workload) bool {
		return len(q["kind"]) > 0 && !slices.Contains(q["kind"], w.Kind) ||
			len(q["state"]) > 0 && !slices.Contains(q["state"], string(w.State)) || !w.Matches(words)
	})
	p := workloadPage{Workloads: []workloadRow{}, Total: len(found), Notes: append([]string{}, notes...)}
	start = min(start, len(found))
	end := min(start+limit, len(found))
	if p.Usage, err = state.AddUsage(ctx, u.Client, u.Cluster, found[start:end]); err != nil {
		return nil, err
	}
	for _, w := range found[start:end] {
		p.Workloads = append(p.Workloads, s.workloadRow(w, may))
	}
	if end < len(found) {
		p.Next = fmt.Sprint(end)
	}
	return p, nil
}

func (s *Server) workloadRow(w *state.Workload, may view.Filter) workloadRow {
	row := workloadRow{Workload: w, Used: s.usages.add(w, s.Now())}
	app := s.Model.Get(w.Application, may)
	if app == nil {
		return row
	}
	row.Revision = app.Revision
	for _, id := range app.Sources {
		if source := s.Model.Get(id, may); source != nil && source.Revision == app.Revision {
			row.Subject, row.Author = source.Subject, source.Author
		}
	}
	return row
}

// actOnWorkload restarts a rollout, runs a CronJob now, or deletes a pod, in the name of the user.
func (s *Server) actOnWorkload(ctx context.Context, u *User, r *http.Request) (any, error) {
	action, kind := r.PathValue("action"), r.PathValue("kind")
	key := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	var body struct {
		Reason string `json:"reason"`
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	if body.Reason = strings.TrimSpace(body.Reason); len(body.Reason) > maxReason {
		return nil, badRequest("the reason has more than %d bytes", maxReason)
	}
	s.Log.Info("write by the UI", "user", u.Name, "action", action, "kind", excerpt.Bytes(kind, 100),
		"namespace", key.Namespace, "name", key.Name, "reason", body.Reason)
	answer := &done{Done: action}
	var err error
	switch {
	case action == actRestart && kind == "Deployment":
		o := &appsv1.Deployment{}
		if err = u.Client.Get(ctx, key, o); err == nil && o.Spec.Paused {
			return nil, badRequest("the rollout of this Deployment is paused: kubectl rollout resume first")
		}
		err = s.restart(ctx, u, o, &o.Spec.Template, err)
	case action == actRestart && kind == "StatefulSet":
		o := &appsv1.StatefulSet{}
		err = s.restart(ctx, u, o, &o.Spec.Template, u.Client.Get(ctx, key, o))
	case action == actRestart && kind == "DaemonSet":
		o := &appsv1.DaemonSet{}
		err = s.restart(ctx, u, o, &o.Spec.Template, u.Client.Get(ctx, key, o))
	case action == actRun && kind == "CronJob":
		answer.Made, err = run(ctx, u, key)
	case action == actDelete && kind == "Pod":
		err = u.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace,
			Name: key.Name}})
	default:
		return nil, badRequest("a %s cannot be asked to %q", excerpt.Bytes(kind, 100), excerpt.Bytes(action, 30))
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// restart changes an annotation of the template of a workload, so that its pods are created again. The annotation
// belongs to the UI: applies leave it.
func (s *Server) restart(ctx context.Context, u *User, o client.Object, template *corev1.PodTemplateSpec,
	err error) error {
	if err != nil {
		return err
	}
	before := o.DeepCopyObject().(client.Object)
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, restartedAt, s.Now().Format(time.RFC3339))
	return u.Client.Patch(ctx, o, client.MergeFrom(before), fieldOwner)
}

// run creates a Job from the template of a CronJob, and returns its ID.
func run(ctx context.Context, u *User, key client.ObjectKey) (string, error) {
	cron := &batchv1.CronJob{}
	if err := u.Client.Get(ctx, key, cron); err != nil {
		return "", err
	}
	template := cron.Spec.JobTemplate
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cron.Namespace, Labels: template.Labels,
		GenerateName: strings.TrimRight(cron.Name[:min(len(cron.Name), maxCronName)], "-.") + "-",
		Annotations:  template.Annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob",
			Name: cron.Name, UID: cron.UID, Controller: ptr.To(true)}}}, Spec: template.Spec}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, instantiate, "manual")
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, requestedBy, u.Name)
	if err := u.Client.Create(ctx, job, fieldOwner); err != nil {
		return "", err
	}
	return view.ID("Job", job.Namespace, job.Name), nil
}
