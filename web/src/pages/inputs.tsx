import { Inputs, path } from '../api';
import { useData } from '../hooks';
import { Card, Empty, Loading, ObjectLink, plural, YAMLText } from '../parts';

// InputSets are the inputs of a ResourceSet, and which object comes from which.
export function InputSets({ id }: { id: string }) {
  const { data, error } = useData<Inputs>(`objects/${path(id)}/inputs`, (c) => c.id === id || /InputProvider\//.test(c.id));
  if (!data) {
    return <Loading error={error} />;
  }
  return (
    <Card title={plural(data.inputs.length + data.omitted, 'input set')} extra={data.omitted > 0 && <span class="quiet">{data.omitted} more are not shown</span>}>
      {data.error && <p class="alert waiting">What the inputs render is not known: {data.error}</p>}
      {data.inputs.length === 0 && !data.error && <Empty>It has no inputs: its templates are rendered once.</Empty>}
      <ul class="plain rows">
        {data.inputs.map((i) => (
          <li>
            <div class="line">
              {i.id && <strong>{i.id}</strong>}
              {i.from ? i.from !== id && <ObjectLink id={i.from} /> : <span class="quiet">a combination of several providers</span>}
              {i.from === id && <span class="quiet">from spec.inputs</span>}
              <span class="end quiet">{plural(i.count, 'object')}</span>
            </div>
            <YAMLText label="Values">{i.values}</YAMLText>
            <ul class="plain">
              {i.objects.map((o) => (
                <li class="mono">{o}</li>
              ))}
            </ul>
            {i.count > i.objects.length && <p class="quiet">{i.count - i.objects.length} more objects are not shown.</p>}
          </li>
        ))}
      </ul>
    </Card>
  );
}
