package stubapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	operationApply  = "Apply"
	operationUpdate = "Update"
)

// write answers a request that is not a read.
func (s *Server) write(r *http.Request, q *query) (answer []byte, code int, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	code = http.StatusOK
	if q.verb == "patch" {
		answer, created, err := s.patch(q, types.PatchType(contentType(r)), body)
		if created {
			code = http.StatusCreated
		}
		return answer, code, err
	}
	object := map[string]any{}
	if len(body) > 0 {
		if object, err = decodeBody(contentType(r), body); err != nil {
			return nil, 0, apierrors.NewBadRequest(err.Error())
		}
	}
	switch q.verb {
	case "create":
		code = http.StatusCreated
		if q.virtual || q.subresource == "token" {
			return review(q, object), code, nil
		}
		answer, err = s.create(q, object)
	case "update":
		answer, err = s.change(q, func(old map[string]any) (map[string]any, fieldSet, error) {
			object["apiVersion"], object["kind"] = old["apiVersion"], old["kind"]
			return object, nil, nil
		})
	default:
		answer, err = s.delete(q, object)
	}
	return answer, code, err
}

func contentType(r *http.Request) string {
	t, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return t
}

// decodeBody decodes an object or options.
func decodeBody(contentType string, body []byte) (map[string]any, error) {
	object := map[string]any{}
	if contentType != runtime.ContentTypeProtobuf {
		return object, yaml.Unmarshal(body, &object)
	}
	typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object = decode(encode(typed))
	object["apiVersion"], object["kind"] = gvk.ToAPIVersionAndKind()
	return object, nil
}

// review answers reviews, which allow everything, and requests for tokens.
func review(q *query, object map[string]any) []byte {
	const lifetime = time.Hour
	switch {
	case q.subresource == "token":
		object["apiVersion"], object["kind"] = "authentication.k8s.io/v1", "TokenRequest"
		object["status"] = map[string]any{"token": "stub",
			"expirationTimestamp": time.Now().Add(lifetime).UTC().Format(time.RFC3339)}
	case q.Group == authorizationGroup:
		object["status"] = map[string]any{"allowed": true}
	case q.Kind == "TokenReview":
		object["status"] = map[string]any{"authenticated": true, "user": map[string]any{"username": "stub"}}
	default:
		object["status"] = map[string]any{"userInfo": map[string]any{"username": "stub"}}
	}
	return encode(object)
}

func (s *Server) create(q *query, object map[string]any) ([]byte, error) {
	m := metadataOf(object)
	if prefix, _ := m["generateName"].(string); m["name"] == nil && prefix != "" {
		m["name"] = prefix + rand.String(5)
	}
	name, _ := m["name"].(string)
	if name == "" {
		return nil, apierrors.NewBadRequest("name is required")
	}
	q.name = name
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items[q.key()] != nil {
		return nil, apierrors.NewAlreadyExists(q.gvr().GroupResource(), name)
	}
	if q.hasStatus && q.Group != "apiextensions.k8s.io" {
		delete(object, "status")
	}
	object["apiVersion"], object["kind"] = q.GroupVersion().String(), q.Kind
	track(map[string]any{}, object, q.by, nil, time.Now())
	return s.store(q, nil, nil, object), nil
}

// store stores a new object, or one that changed, and returns it. The caller holds the table's lock.
func (s *Server) store(q *query, before *item, old, now map[string]any) []byte {
	m, was := metadataOf(now), map[string]any{}
	if old != nil {
		was = metadataOf(old)
	} else {
		was["uid"], was["creationTimestamp"] = newUID(), time.Now().UTC().Format(time.RFC3339)
	}
	m["name"] = q.name
	if q.namespaced {
		m["namespace"] = q.namespace
	}
	for _, field := range []string{"uid", "creationTimestamp", "generation", "deletionTimestamp", "resourceVersion"} {
		if delete(m, field); was[field] != nil {
			m[field] = was[field]
		}
	}
	if generation, _ := was["generation"].(float64); q.generation && specChanged(old, now) {
		m["generation"] = generation + 1
	}
	settle(q.kind, now)
	if q.dryRun {
		return encode(now)
	}
	version := s.version.Add(1)
	finalizers, _ := m["finalizers"].([]any)
	if m["deletionTimestamp"] != nil && len(finalizers) == 0 {
		q.put(version, before, nil)
		return encode(now)
	}
	m["resourceVersion"] = strconv.FormatUint(version, 10)
	i := &item{NamespacedName: q.key(), version: version, labels: labelsOf(m), json: encode(now)}
	q.put(version, before, i)
	return i.json
}

func labelsOf(metadata map[string]any) map[string]string {
	all, _ := metadata["labels"].(map[string]any)
	out := make(map[string]string, len(all))
	for k, v := range all {
		out[k], _ = v.(string)
	}
	return out
}

// specChanged reports whether a part changed that counts for the generation.
func specChanged(old, now map[string]any) bool {
	set, removed := changed(ownable(old), ownable(now))
	for name := range union(set, removed) {
		if name != "f:metadata" && name != "f:status" {
			return true
		}
	}
	return old == nil
}

// settle sets the status that a controller of Kubernetes would set soon.
func settle(k *kind, o map[string]any) {
	if k.Group != appsGroup {
		return
	}
	spec, _ := o["spec"].(map[string]any)
	replicas, ok := spec["replicas"].(float64)
	if !ok {
		replicas = 1
	}
	o["status"] = map[string]any{"observedGeneration": metadataOf(o)["generation"], "replicas": replicas,
		"updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
		"conditions": []any{
			map[string]any{"type": "Available", "status": "True"},
			map[string]any{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}}}
}

// change replaces an object by what a function makes of a copy, with the fields of an apply.
func (s *Server) change(q *query, edit func(old map[string]any) (map[string]any, fieldSet, error)) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.items[q.key()]
	if before == nil {
		return nil, apierrors.NewNotFound(q.gvr().GroupResource(), q.name)
	}
	old := decode(before.json)
	now, applied, err := edit(decode(before.json))
	if err != nil {
		return nil, err
	}
	if v := metadataOf(now)["resourceVersion"]; v != nil && v != "" && v != metadataOf(old)["resourceVersion"] {
		return nil, apierrors.NewConflict(q.gvr().GroupResource(), q.name, errModified)
	}
	if q.hasStatus {
		now = q.oneSide(old, now)
	}
	track(old, now, q.by, applied, time.Now())
	if set, removed := changed(old, withServerFields(old, now)); len(set)+len(removed) == 0 {
		return before.json, nil
	}
	return s.store(q, before, old, now), nil
}

var errModified = errors.New("the object has been modified; apply your changes to the latest version and try again")

// oneSide returns an object whose status is the old one or, for the status subresource, all but the status.
func (q *query) oneSide(old, now map[string]any) map[string]any {
	from, to := old, now
	if q.subresource == "status" {
		from, to = now, decode(encode(old))
	}
	if delete(to, "status"); from["status"] != nil {
		to["status"] = from["status"]
	}
	return to
}

// withServerFields returns a copy of an object with the metadata that the server sets, for comparisons.
func withServerFields(old, now map[string]any) map[string]any {
	out, m := make(map[string]any, len(now)), map[string]any{}
	for k, v := range now {
		out[k] = v
	}
	for k, v := range metadataOf(now) {
		m[k] = v
	}
	for _, field := range []string{"name", "namespace", "uid", "creationTimestamp", "generation", "deletionTimestamp",
		"resourceVersion"} {
		if delete(m, field); metadataOf(old)[field] != nil {
			m[field] = metadataOf(old)[field]
		}
	}
	out["metadata"] = m
	return out
}

func (s *Server) patch(q *query, how types.PatchType, body []byte) (answer []byte, created bool, err error) {
	var manifest map[string]any
	if how != types.JSONPatchType {
		if manifest, err = decodeBody("", body); err != nil {
			return nil, false, apierrors.NewBadRequest(err.Error())
		}
	}
	if how == types.ApplyPatchType {
		q.by.operation = operationApply
		return s.apply(q, manifest)
	}
	answer, err = s.change(q, func(old map[string]any) (map[string]any, fieldSet, error) {
		if how == types.JSONPatchType {
			p, err := jsonpatch.DecodePatch(body)
			if err != nil {
				return nil, nil, apierrors.NewBadRequest(err.Error())
			}
			now, err := p.Apply(encode(old))
			if err != nil {
				return nil, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch",
					schema.GroupResource{}, q.name, err.Error(), 0, true)
			}
			return decode(now), nil, nil
		}
		merge(old, manifest)
		return old, nil, nil
	})
	return answer, false, err
}

// apply is a server-side apply, as with force.
func (s *Server) apply(q *query, manifest map[string]any) (answer []byte, created bool, err error) {
	edit := func(old map[string]any) (map[string]any, fieldSet, error) {
		now, set := apply(old, manifest, q.by)
		if v := metadataOf(manifest)["resourceVersion"]; v != nil {
			metadataOf(now)["resourceVersion"] = v
		}
		return now, set, nil
	}
	answer, err = s.change(q, edit)
	if !apierrors.IsNotFound(err) || q.subresource != "" {
		return answer, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items[q.key()] != nil {
		return nil, false, apierrors.NewConflict(q.gvr().GroupResource(), q.name, errModified)
	}
	now, set := apply(map[string]any{}, manifest, q.by)
	now["apiVersion"], now["kind"] = q.GroupVersion().String(), q.Kind
	track(map[string]any{}, now, q.by, set, time.Now())
	return s.store(q, nil, nil, now), true, nil
}

// delete deletes an object, or marks it if it has finalizers.
func (s *Server) delete(q *query, options map[string]any) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.items[q.key()]
	if before == nil {
		return nil, apierrors.NewNotFound(q.gvr().GroupResource(), q.name)
	}
	old := decode(before.json)
	m := metadataOf(old)
	expected, _ := options["preconditions"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion"} {
		if v := expected[field]; v != nil && v != m[field] {
			return nil, apierrors.NewConflict(q.gvr().GroupResource(), q.name, errModified)
		}
	}
	if all, _ := options["dryRun"].([]any); q.dryRun || len(all) > 0 || m["deletionTimestamp"] != nil {
		return before.json, nil
	}
	m["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	s.store(q, before, old, decode(encode(old)))
	return encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}), nil
}
