local app = import 'app.libsonnet';

app(name='web-jsonnet', image='nginx:1.29')
